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
    """The planned faults. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Fault | None] = deque()
        self._rules: list[tuple[Callable[[Asked], bool], deque[Fault]]] = []
        self._stalls: list[Stall] = []
        self._lasting: list[tuple[Callable[[], bool], Fault]] = []

    def push(self, *faults: Fault | None) -> None:
        """Apply these faults to the next valid requests, one each, in order; None skips one."""
        with self._lock:
            self._queue.extend(faults)
            self._watch(*faults)

    def when(self, fits: Callable[[Asked], bool], *faults: Fault) -> None:
        """Apply these faults to the next matching requests, one each, before the queued faults."""
        with self._lock:
            self._rules.append((fits, deque(faults)))
            self._watch(*faults)

    def during(self, holds: Callable[[], bool], fault: Fault) -> None:
        """Apply a fault to all requests while a condition holds, before all other faults."""
        with self._lock:
            self._lasting.append((holds, fault))

    @property
    def left(self) -> int:
        """The number of faults that have not been applied."""
        with self._lock:
            return len(self._queue) + sum(len(faults) for _, faults in self._rules)

    def take(self, asked: Asked) -> Fault | None:
        """Return the fault for this request, and remove it from the plan."""
        with self._lock:
            for holds, fault in self._lasting:
                if holds():
                    return fault
            for fits, faults in self._rules:
                if faults and fits(asked):
                    return faults.popleft()
            return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        """Release all stalls, current and future."""
        with self._lock:
            for stall in self._stalls:
                stall.released.set()

    def _watch(self, *faults: Fault | None) -> None:
        self._stalls += [fault for fault in faults if isinstance(fault, Stall)]


@dataclass(slots=True, kw_only=True)
class Accepted:
    """One valid request for a message.

    Attributes:
        body: the parsed JSON body.
        headers: their names in lower case.
        received: `time.monotonic()` at the end of its arrival, in seconds.
        asked: the same request in a form that tests can query.
        fault: the fault that was applied, if any.
        message: the answer with its `usage`, even if not all of it was sent.
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
        cache: the cached prompts.
    """

    issued: Issued = field(default_factory=Issued)
    cache: PromptCache = field(default_factory=PromptCache)


class Exchange:
    """An accepted request with everything needed to answer it, or to apply a fault to it."""

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
        """Encode an answer, by default that of the test's model."""
        chosen = self._model(self._accepted.asked) if answer is None else answer
        if self._omits and chosen.thinking:
            chosen = replace(chosen, thinking="")
        usage = self._memory.cache.account(self._accepted.body)
        body = self._accepted.body
        message = chosen.message(model=body["model"], usage=usage, body=body)
        self._memory.issued.remember(message)
        self._accepted.message = message
        return encode(message)
