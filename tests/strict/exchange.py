"""One accepted request and its answer, from the model to the events that are sent."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.strict.asked import Asked, Model
from tests.strict.cache import PromptCache
from tests.strict.faults import Fault
from tests.strict.issued import Issued
from tests.strict.replies import Answer
from tests.strict.sse import encode
from tests.strict.wire import Wire


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
    """What a server remembers from request to request.

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
