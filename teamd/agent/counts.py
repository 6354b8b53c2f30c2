"""What a server has counted of a conversation, and what it says about the next request.

A reply's record holds its usage and the frame of its request: a digest of server, model, system
prompt and tools, which are no part of the record. So a process that reads the transcript knows as
much of the last requests as the one that made them.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from teamd.agent.view import View
    from teamd.models import Ask, Block
    from teamd.store.transcript import Record

REMEMBERED: Final = 4  # requests; the very last may have been one for a summary, or refused

_Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A request whose tokens the server has told, and the reply to it.

    Attributes:
        frame: the request's, as `frame_of` gives it.
        messages: the request's.
        said: the content of the reply.
        tokens: of both.
    """

    frame: str
    messages: Sequence[_Message]
    said: Sequence[Block]
    tokens: int

    def most_of(self, messages: Sequence[_Message]) -> int:
        """The most tokens of a request of the same frame with these messages.

        What was told counts once, and each message that was not in it by its bytes. A message
        that is gone can only make it less.
        """
        new = [message for at, message in enumerate(messages) if not self._had(at, message)]
        return self.tokens + size_of(new)

    def _had(self, at: int, message: _Message) -> bool:
        if at == len(self.messages) and message["role"] == "assistant":
            return all(block in self.said for block in message["content"])
        return at < len(self.messages) and message == self.messages[at]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """What a record tells of a request; its messages are found in the view.

    Attributes:
        length: how many exchanges of the view were in it.
        told: what stood behind them.
        said: the content of the reply.
    """

    frame: str
    tokens: int
    length: int = 0
    told: Sequence[Block] = ()
    said: Sequence[Block] = ()


class Counts:
    """The last requests of a conversation whose tokens its records tell."""

    def __init__(self) -> None:
        self._last: deque[_Count] = deque(maxlen=REMEMBERED)

    def add(self, record: Record) -> None:
        """Take note of a request of which nothing but its frame is in the view."""
        self._add(record)

    def add_reply(self, record: Record, view: View) -> None:
        """Take note of the request that the view was, before the reply stands in it."""
        self._add(record, length=view.length, told=view.told, said=record["content"])

    def restart(self) -> None:
        """Forget the messages, since others stand in their place; what is known are the frames."""
        kept = [_Count(frame=count.frame, tokens=count.tokens) for count in self._last]
        self._last = deque(kept, maxlen=REMEMBERED)

    def known(self, view: View) -> list[Known]:
        """What is known of them, the newest first."""
        return [
            Known(
                frame=count.frame,
                messages=view.earlier(count.length, count.told),
                said=count.said,
                tokens=count.tokens,
            )
            for count in reversed(self._last)
        ]

    def _add(self, record: Record, **seen: Any) -> None:
        frame = record.get("frame")
        tokens = input_tokens(record) + int(record["usage"]["output_tokens"])
        if frame and tokens:  # else the server does not count, or an earlier version wrote it
            self._last.append(_Count(frame=frame, tokens=tokens, **seen))


def frame_of(ask: Ask, server: str) -> str:
    """All of a request but its messages, and whom it is for, as a digest: each server counts so."""
    frame = json.dumps([server, ask.model, ask.system, ask.tools], ensure_ascii=False)
    return hashlib.sha256(frame.encode(errors="replace")).hexdigest()[:32]


def size_of(value: Any) -> int:
    """How many bytes a part of a request takes."""
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def input_tokens(record: Record) -> int:
    """All input of a reply, by its record: whether it came from the cache or not."""
    keys = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
    return sum(int(record["usage"][key]) for key in keys)
