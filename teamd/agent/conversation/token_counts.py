"""Token counts: what a server has counted of a conversation bounds the next request.

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

    from teamd.agent.conversation.context import Context
    from teamd.models import Ask, Block
    from teamd.tokens import Usage

REMEMBERED: Final = 4  # requests; the very last may have been one for a summary, or refused

_Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRequest:
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

    def bound(self, messages: Sequence[_Message]) -> int:
        """Return the most tokens of a request of the same frame with these messages.

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
    """The tokens of a request, as a record tells them; its messages are found in the context.

    Attributes:
        length: how many exchanges of the context were in it.
        pending: what stood behind them.
        said: the content of the reply.
    """

    frame: str
    tokens: int
    length: int = 0
    pending: Sequence[Block] = ()
    said: Sequence[Block] = ()


class TokenCounts:
    """The last requests of a conversation whose tokens its records tell."""

    def __init__(self) -> None:
        self._last: deque[_Count] = deque(maxlen=REMEMBERED)

    def add(self, frame: str, usage: Usage, **seen: Any) -> None:
        """Take note of a request, and of what of the conversation was in it.

        Without a frame an earlier version or another server made it.
        """
        if frame and usage.total_tokens:
            self._last.append(_Count(frame=frame, tokens=usage.total_tokens, **seen))

    def forget_messages(self) -> None:
        """Keep only the frames, since other messages stand in the place of the earlier ones."""
        kept = [_Count(frame=count.frame, tokens=count.tokens) for count in self._last]
        self._last = deque(kept, maxlen=REMEMBERED)

    def requests(self, context: Context) -> list[CountedRequest]:
        """Return what is known of them, the newest first."""
        return [
            CountedRequest(
                frame=count.frame,
                messages=context.earlier_messages(count.length, count.pending),
                said=count.said,
                tokens=count.tokens,
            )
            for count in reversed(self._last)
        ]


def frame_of(ask: Ask, server: str) -> str:
    """Return a digest of all of a request but its messages, and of the server that counts it."""
    frame = json.dumps([server, ask.model, ask.system, ask.tools], ensure_ascii=False)
    return hashlib.sha256(frame.encode(errors="replace")).hexdigest()[:32]


def size_of(value: Any) -> int:
    """Return how many bytes a part of a request takes."""
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
