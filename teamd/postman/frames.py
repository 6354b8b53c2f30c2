"""The protocol between two postmen: three kinds of frames, and their JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeGuard

from teamd.hosts.cursor import Cursor, is_number
from teamd.hosts.outbox_file import Header
from teamd.messages import is_tag

# The start of each frame with lines, which is parsed without JSON, since most frames are of this
# kind.
_LINES: Final = b'{"kind":"lines","epoch":"'
_TAGGED: Final = re.compile(_LINES + rb'([\w-]{1,64})"}\n')
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Offer:
    """The description of an outbox by its owner.

    Attributes:
        header: the first line of the outbox; earlier lines are removed.
        confirmed: the last line that the other side has confirmed.
        last: the number of its last line.
    """

    header: Header
    confirmed: Cursor
    last: int

    def to_json(self) -> dict[str, Any]:
        """Return the fields to send."""
        confirmed = self.confirmed.to_json()
        return {**self.header.to_json(), "confirmed": confirmed, "last": self.last}

    @classmethod
    def from_json(cls, found: Any) -> Offer | None:
        """Decode an offer; `None` if it is invalid."""
        header = Header.from_json(found)
        if header is None:
            return None
        confirmed, last = Cursor.from_json(found.get("confirmed")), found.get("last")
        if confirmed is None or not is_number(last):
            return None
        return cls(header, confirmed, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloFrame:
    """Reports the state of one side, and may ask for that of the other.

    The state may be outdated on arrival, unless it answers a question that was just asked.

    Attributes:
        session: the random id of this run of the postman.
        ask: the id of a question; empty if there is no question.
        answers: the id of the question that this frame answers, if any.
        offer: the outbox for the other side, if there is one.
        received: the position up to which the other side's outbox has arrived.
    """

    session: str
    ask: str = ""
    answers: str = ""
    offer: Offer | None = None
    received: Cursor | None = None

    def encode(self) -> bytes:
        fields = {"session": self.session, "ask": self.ask, "answers": self.answers}
        offer = None if self.offer is None else self.offer.to_json()
        received = None if self.received is None else self.received.to_json()
        return _encode({"kind": "hello", **fields, "offer": offer, "received": received})


@dataclass(frozen=True, slots=True)
class ReceiptFrame:
    """Confirms all lines up to a position."""

    session: str
    cursor: Cursor

    def encode(self) -> bytes:
        return _encode({"kind": "receipt", "session": self.session, **self.cursor.to_json()})


@dataclass(frozen=True, slots=True)
class LineFrame:
    """Lines of an outbox, unchanged, after the frame's own first line."""

    epoch: str
    content: bytes

    def encode(self) -> bytes:
        return b'%s%s"}\n%s' % (_LINES, self.epoch.encode(), self.content)


Frame: TypeAlias = HelloFrame | ReceiptFrame | LineFrame


def decode(payload: bytes) -> Frame | None:
    """Decode a frame; `None` if it is invalid."""
    if (head := _TAGGED.match(payload)) is not None:
        return LineFrame(head[1].decode(), payload[head.end() :])
    return _decode_json(payload)


def _decode_json(payload: bytes) -> Frame | None:
    first, _, rest = payload.partition(b"\n")
    try:
        found = json.loads(first)
    except (ValueError, RecursionError):
        return None
    match found:
        case {"kind": "lines", "epoch": str(epoch)}:
            return LineFrame(epoch, rest)
        case {"kind": "receipt", "session": str(session)}:
            cursor = Cursor.from_json(found)
            return None if cursor is None else ReceiptFrame(session, cursor)
        case {"kind": "hello", "session": session, "ask": ask, "answers": answers}:
            if not (is_tag(session) and _is_question(ask) and _is_question(answers)):
                return None
            offer = Offer.from_json(found.get("offer"))
            received = Cursor.from_json(found.get("received"))
            return HelloFrame(
                session=session, ask=ask, answers=answers, offer=offer, received=received
            )
    return None


def _is_question(value: object) -> TypeGuard[str]:
    return value == "" or is_tag(value)


def _encode(fields: dict[str, Any]) -> bytes:
    return _ENCODER.encode(fields).encode()
