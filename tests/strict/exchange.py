"""One accepted request and its answer, from the model to the events that are sent."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.strict.asked import Asked, Model
from tests.strict.cache import PromptCache
from tests.strict.conversation import Issued
from tests.strict.faults import Fault, Stall
from tests.strict.replies import Answer
from tests.strict.wire import Wire, encode


class Plan:
    """The faults to come. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Fault | None] = deque()
        self._rules: list[tuple[Callable[[Asked], bool], deque[Fault]]] = []
        self._stalls: list[Stall] = []
        self._lasting: list[tuple[Callable[[], bool], Fault]] = []

    def push(self, *faults: Fault | None) -> None:
        """Let the next good requests meet these, one each, in order; None spares one."""
        with self._lock:
            self._queue.extend(faults)
            self._watch(*faults)

    def when(self, fits: Callable[[Asked], bool], *faults: Fault) -> None:
        """Let the next requests that fit meet these, one each; asked before the queue is."""
        with self._lock:
            self._rules.append((fits, deque(faults)))
            self._watch(*faults)

    def during(self, holds: Callable[[], bool], fault: Fault) -> None:
        """Let all requests meet this one as long as something holds; asked before the others."""
        with self._lock:
            self._lasting.append((holds, fault))

    @property
    def left(self) -> int:
        """How many faults no request has met yet."""
        with self._lock:
            return len(self._queue) + sum(len(faults) for _, faults in self._rules)

    def take(self, asked: Asked) -> Fault | None:
        """Return the fault that this request meets, and cross it out."""
        with self._lock:
            for holds, fault in self._lasting:
                if holds():
                    return fault
            for fits, faults in self._rules:
                if faults and fits(asked):
                    return faults.popleft()
            return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        """Release all stalls, now and later."""
        with self._lock:
            for stall in self._stalls:
                stall.released.set()

    def _watch(self, *faults: Fault | None) -> None:
        self._stalls += [fault for fault in faults if isinstance(fault, Stall)]


@dataclass(slots=True, kw_only=True)
class Accepted:
    """One request for a message that kept every rule.

    Attributes:
        body: parsed.
        headers: their names in lower case.
        received: `time.monotonic()` when it had arrived, in seconds.
        asked: the same, for reading.
        fault: what it met, if anything.
        message: what it was answered with, `usage` in it, even if not all of it was sent.
    """

    body: dict[str, Any]
    headers: Mapping[str, str]
    received: float
    asked: Asked
    fault: Fault | None
    message: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a server between requests.

    Attributes:
        issued: the answers sent.
        cache: the prompts read.
    """

    issued: Issued = field(default_factory=Issued)
    cache: PromptCache = field(default_factory=PromptCache)


class Exchange:
    """What a fault, or nothing but the wish to answer, works on."""

    def __init__(
        self,
        accepted: Accepted,
        model: Model,
        memory: Memory,
        closed: threading.Event,
        *,
        omits: bool = False,
    ) -> None:
        self._accepted = accepted
        self._model = model
        self._memory = memory
        self._closed = closed
        display = accepted.body.get("thinking", {}).get("display")
        self._omits = omits and display != "summarized"

    @property
    def closing(self) -> bool:
        """Whether the server is being closed."""
        return self._closed.is_set()

    def wait_for_close(self, wire: Wire) -> None:
        """Keep the connection open until the server closes."""
        self._closed.wait()
        wire.reset()

    def events(self, answer: Answer | None = None) -> list[bytes]:
        """Encode an answer; without one, ask the test's model for it."""
        chosen = self._model(self._accepted.asked) if answer is None else answer
        if self._omits and chosen.thinking:
            chosen = replace(chosen, thinking="")
        usage = self._memory.cache.account(self._accepted.body)
        body = self._accepted.body
        message = chosen.message(model=body["model"], usage=usage, body=body)
        self._memory.issued.remember(message)
        self._accepted.message = message
        return encode(message)
