"""A queue of mail that is looked at now and then: what of it has not been seen yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from teamd.messages import Message


class Unseen:
    """Mail goes in at its end and out at its front, and keeps its order in between."""

    def __init__(self) -> None:
        self._last: Sequence[Message] = ()
        self._seen: set[tuple[str, str, str]] = set()

    def among(self, now: Sequence[Message]) -> list[Message]:
        """Those that have come since the last look; a repeated send is one message.

        A foreign line without an id gets another one at each look, until it is taken. Such lines
        are known by their place: what has stayed is where the queue of the last look ends.
        """
        stayed = next(k for k in range(len(self._last) + 1) if _begins(now, self._last[k:]))
        known = len(self._last) - stayed
        self._last = tuple(now)
        self._seen.update(map(_identity, now[:known]))
        fresh = []
        for message in now[known:]:
            if _identity(message) not in self._seen:
                self._seen.add(_identity(message))
                fresh.append(message)
        return fresh


def _begins(now: Sequence[Message], rest: Sequence[Message]) -> bool:
    return len(rest) <= len(now) and all(map(_may_be, rest, now))


def _may_be(before: Message, now: Message) -> bool:
    """Whether a message may be the one that was seen before."""
    if before.id_given:
        return before.is_same_as(now)
    return (before.sender, before.type, before.content) == (now.sender, now.type, now.content)


def _identity(message: Message) -> tuple[str, str, str]:
    return message.id, message.sender, message.content
