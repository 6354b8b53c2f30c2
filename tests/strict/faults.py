"""Faults: the ways in which a model's service fails.

A fault that breaks a stream breaks an answer of its own, so that the test's model plays the turn
when the client retries the request.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.strict.blocks import ApiError
from tests.strict.replies import Answer, say
from tests.strict.wire import Wire, event

if TYPE_CHECKING:
    from tests.strict.exchange import Exchange


SPOILT: Final = say("This answer does not arrive as a whole.")
TYPES: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    408: "timeout_error",
    409: "conflict_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Fault(Protocol):
    """One way to fail. It may be applied to any number of requests."""

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Answer a request with this fault."""


@dataclass(frozen=True, slots=True)
class Status:
    """An HTTP error with the service's JSON body, or with a proxy's HTML page.

    Attributes:
        status: 408, 409, 429, 500, 502, 503, 504, 529, …
        retry_after: the header's value: seconds, or a date.
        html: whether the body is a page, such as a load balancer sends.
        message: the message in the service's body.
    """

    status: int
    retry_after: str | float | None = None
    html: bool = False
    message: str = ""

    def strike(self, wire: Wire, exchange: Exchange) -> None:  # noqa: ARG002  # as all do
        later = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        if self.html:
            page = f"<html><body><h1>{self.status} Bad Gateway</h1></body></html>".encode()
            wire.reply(self.status, page, {"content-type": "text/html", **later})
        else:
            kind = TYPES.get(self.status, "api_error")
            wire.error(
                ApiError(self.status, kind, self.message or f"injected {self.status}"), later
            )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A 400 with a message of its own, such as for a rejected block of the conversation."""

    message: str
    status: int = 400

    def strike(self, wire: Wire, exchange: Exchange) -> None:  # noqa: ARG002  # as all do
        wire.error(ApiError(self.status, "invalid_request_error", self.message))


@dataclass(frozen=True, slots=True)
class Reset:
    """A connection reset.

    Attributes:
        after: events sent before it; None resets before any byte.
        answer: the answer whose events are sent.
    """

    after: int | None = None
    answer: Answer = SPOILT

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send some events, if any, and reset."""
        if self.after is not None:
            _begin(wire, exchange.events(self.answer), self.after)
        wire.reset()


@dataclass(frozen=True, slots=True)
class Cut:
    """A stream that closes cleanly in the middle: no stop reason, no `message_stop`.

    Attributes:
        after: events sent before the end.
        answer: the answer whose events are sent.
    """

    after: int = 4
    answer: Answer = SPOILT

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send some events and close the stream cleanly."""
        _begin(wire, exchange.events(self.answer), self.after)
        wire.finish()


@dataclass(frozen=True, slots=True)
class Malformed:
    """A stream with a data line that is not JSON, or with a line that the API never sends.

    Attributes:
        after: events sent before it.
        answer: the answer whose events are sent.
        data: the line, or several.
    """

    after: int = 4
    answer: Answer = SPOILT
    data: bytes = b'event: content_block_delta\ndata: {"type": "content_blo\n\n'

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send some events, the broken line, and end."""
        _begin(wire, exchange.events(self.answer), self.after)
        wire.send(self.data)
        wire.finish()


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """A stream with an `error` event in the middle, as the service sends when overloaded.

    Attributes:
        after: events sent before it.
        answer: the answer whose events are sent.
        type: the error type.
    """

    after: int = 4
    answer: Answer = SPOILT
    type: str = "overloaded_error"

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send some events, the error, and end."""
        _begin(wire, exchange.events(self.answer), self.after)
        error = {"type": self.type, "message": "Overloaded"}
        wire.send(event("error", error=error, request_id=wire.request_id))
        wire.finish()


@dataclass(frozen=True, slots=True)
class Trickle:
    """A good answer sent one byte at a time, each in its own chunk."""

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send the model's own answer slowly."""
        events = exchange.events()
        wire.start()
        for byte in b"".join(events):
            wire.send(bytes([byte]))
        wire.finish()


@dataclass(frozen=True, slots=True)
class Stall:
    """Silence, until the test releases it or the server closes.

    Attributes:
        after: events sent before it; None stalls before any byte and later sends the model's own
            answer.
        answer: the answer whose events are sent; the rest follows after the release.
        reached: set when a request has reached the silence.
        released: set it to continue.
    """

    after: int | None = None
    answer: Answer = SPOILT
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send some events, if any, wait, and send the rest."""
        events = [] if self.after is None else exchange.events(self.answer)
        sent = 0 if self.after is None else _begin(wire, events, self.after)
        self.reached.set()
        self.released.wait()
        if exchange.closing:
            wire.reset()
            return
        if self.after is None:
            events = exchange.events()
            wire.start()
        for data in events[sent:]:
            wire.send(data)
        wire.finish()


@dataclass(frozen=True, slots=True)
class Pings:
    """A stream that sends only pings, until its reader disconnects or the server closes.

    Attributes:
        after: events sent before the pings.
        every_seconds: the interval between two pings.
    """

    after: int = 4
    every_seconds: float = 0.02

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Send some events, and pings."""
        _begin(wire, exchange.events(SPOILT), self.after)
        while not exchange.closing:
            wire.send(event("ping"))
            time.sleep(self.every_seconds)
        wire.reset()


@dataclass(frozen=True, slots=True)
class Endless:
    """An endless answer, sent as fast as its reader accepts it, until the reader disconnects."""

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        """Begin the answer and continue it."""
        _begin(wire, exchange.events(SPOILT), 2)
        delta = {"type": "text_delta", "text": "x" * 1_000_000}
        while not exchange.closing:
            wire.send(event("content_block_delta", index=0, delta=delta))


def _begin(wire: Wire, events: list[bytes], after: int) -> int:
    # `message_delta` and `message_stop` would complete the answer.
    sent = min(after, len(events) - 2)
    wire.start()
    for data in events[:sent]:
        wire.send(data)
    return sent


def _with_block(block: dict[str, Any], stop_reason: object = "tool_use") -> Malformed:
    """Return a stream that is complete, but whose one block has a wrong shape."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    events = (
        event("content_block_start", index=0, content_block=block),
        event("content_block_stop", index=0),
        event("message_delta", delta=delta, usage={"output_tokens": 1}),
        event("message_stop"),
    )
    return Malformed(after=1, data=b"".join(events))


def _delta(**data: Any) -> Malformed:
    return Malformed(data=event("content_block_delta", **data))


_REASONS: Final[list[object]] = [5, ["end_turn"], {}]
_CALL: Final[dict[str, Any]] = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}

MISSHAPEN: Final[list[Malformed]] = [
    *(_with_block({**_CALL, "name": wrong}) for wrong in (None, 5)),
    _with_block({"type": "text", "text": 5}, "end_turn"),
    _with_block({"text": "of no type"}, "end_turn"),
    *(_with_block({"type": "text", "text": "x"}, reason) for reason in _REASONS),
    _delta(index=77, delta={"type": "text_delta", "text": "x"}),
    _delta(index=0),
    *(
        Malformed(data=b"event: content_block_delta\ndata: " + rest)
        for rest in (b"null\n\n", b"[]\n\n", b"\xff\xfe\n\n", b"{}\n\n")
    ),
    *(
        Malformed(data=data)
        for data in (b"data: [DONE]\n\n", b"event: error\ndata: {}\n\n", b"<html>\n\n", b"\n\n\n")
    ),
    Malformed(after=1, data=event("message_start", message=None)),
]
