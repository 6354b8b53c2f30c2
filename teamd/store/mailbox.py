"""A member's mail: put by anybody, taken by its owner in two steps, so that no kill loses any.

*take* moves what is in the inbox to a file of the reader's own; *done* removes that file once the
mail stands where it belongs. A reader that died in between takes the same mail again, with the
same ids. What `take` does, in an order in which every interruption can be told from every other:

1. append a marker that names the batch to the inbox;
2. write the batch, named, to the taken file (aside, then renamed), see `taken`;
3. truncate the inbox in place.

A taken file whose marker still stands in the inbox was not truncated: all up to the marker is in
the file already. A marker without its file was never taken: it is passed over.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from teamd.errors import NotAMessage
from teamd.protocol import MAX_MESSAGE_BYTES, Message, new_id
from teamd.store import files, lines
from teamd.store.taken import Position, Taken, first_position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from teamd.store.paths import TeamPaths

_SINGLY_AFTER: Final = 2  # readers that ended with the same delivery in hand
_REJECTED_AFTER: Final = 4


@dataclass(frozen=True, slots=True)
class Batch:
    """A delivery: to be put in its place, then given to `Mailbox.done`."""

    id: str
    messages: tuple[Message, ...]
    end: int = 0


EMPTY: Final = Batch("", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """How much one delivery may be; one message it always is.

    Attributes:
        messages: at the most.
        bytes: of their lines, at the most.
        wary: whether a message that its readers do not survive is rejected in the end.
    """

    messages: int | None = None
    bytes: int | None = None
    wary: bool = False


ALL: Final = Portion()


class Mailbox:
    """The mail of one member.

    Args:
        paths: the team.
        owner: whose mail it is.
        durable: whether `put` and `take` wait for the disk itself.
        max_bytes: a longer line is no message.
        tell: hears of each line that is rejected, and why.
    """

    def __init__(
        self,
        paths: TeamPaths,
        owner: str,
        *,
        durable: bool = True,
        max_bytes: int = MAX_MESSAGE_BYTES,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.owner = owner
        self._inbox = paths.inbox(owner)
        self._taken = Taken(paths.taken(owner), owner)
        self._rejected = paths.rejected(owner)
        self._durable = durable
        self._max_bytes = max_bytes
        self._tell = tell
        self._known = ""  # the batch that this reader has had in hand

    def put(self, *messages: Message) -> None:
        """Append messages, all or none; they are safe when this returns.

        Raises:
            NotAMessage: one is too long or holds a NUL.
            StoreError: the file cannot be written; it is as it was.
        """
        lines = [message.encode() for message in messages]
        for line in lines:
            if len(line) > self._max_bytes:
                raise NotAMessage(
                    f"a message of {len(line)} bytes is over the limit of {self._max_bytes}; "
                    "put the text into a file and send its path"
                )
        files.append(self._inbox, b"".join(lines), durable=self._durable)

    def take(self, portion: Portion = ALL) -> Batch:
        """Take mail; the same again until it is `done`, and what follows only after that."""
        with files.locked(self._inbox) as fd, files.told(self._inbox):
            before = self._taken.position()
            fresh = 0 if before is None else lines.behind_marker(fd, before.batch)
            if fresh is not None:  # nothing was taken, or its reader did not get to truncate
                before = self._set_aside(fd, fresh)
            if before is None:
                return EMPTY
            if portion.wary:
                before, portion = self._suspect(before, portion)
            self._known = before.batch
            found, end = self._taken.messages(most=portion.messages, most_bytes=portion.bytes)
        return Batch(before.batch, found, end)

    def done(self, batch: Batch) -> None:
        """Forget a delivery that stands where it belongs; what was taken since stays."""
        with files.locked(self._inbox):
            before = self._taken.position()
            if before is not None and before.batch == batch.id and before.at <= batch.end:
                self._taken.move(Position(batch=batch.id, at=batch.end))

    def peek(self) -> list[Message]:
        """The mail that is under way to its owner, oldest first; nothing is changed."""
        if files.read(self._inbox) is None:
            return []
        with files.locked(self._inbox) as fd:
            before = self._taken.position()
            old, _ = self._taken.messages()
            start = 0 if before is None else lines.behind_marker(fd, before.batch) or 0
            fresh = [self._sorted(line) for line in lines.read(fd, start)]
        return [*old, *(message for message in fresh if isinstance(message, Message))]

    def leftover(self) -> tuple[Message, ...]:
        """Take only what an earlier reader took and had not done with, and forget it."""
        with files.locked(self._inbox) as fd, files.told(self._inbox):
            before = self._taken.position()
            if before is None:
                return ()
            old, end = self._taken.messages()
            fresh = lines.behind_marker(fd, before.batch)
            self._taken.move(replace(before, at=end))
            if fresh is not None:  # what came behind the marker nobody has taken yet
                self._set_aside(fd, fresh)
        return old

    def waiting(self) -> bool:
        """Whether there is anything to take; a look at the files' sizes, no more."""
        return any(files.size(path) for path in (self._inbox, self._taken.path))

    def queued(self) -> int:
        """How many messages are under way, counted by lines and without a lock: for display."""
        taken = sum(part.count(b"\n") for part in self._taken.rest())
        return taken + (files.read(self._inbox) or b"").count(b"\n")

    def rejected(self) -> int:
        """How many lines were no message so far."""
        return (files.read(self._rejected) or b"").count(b"\n")

    def _set_aside(self, fd: int, start: int) -> Position | None:
        """Move the lines from `start` on to the taken file, behind what stands in it."""
        if not any(
            self._sorted(line) is not None for line in lines.read(fd, start, self._max_bytes)
        ):
            if os.fstat(fd).st_size:  # blank ones, dead markers: nobody is to wake for them again
                os.ftruncate(fd, 0)
            return self._taken.position()
        position = first_position(new_id())
        self._known = position.batch
        files.write_at_end(fd, lines.marker(position.batch))
        if self._durable:
            files.sync(fd)
        parts = self._parts(fd, start, position)
        files.replace_by_parts(self._taken.path, parts, durable=self._durable)
        os.ftruncate(fd, 0)
        if self._durable:
            files.sync(fd)
        return position

    def _parts(self, fd: int, start: int, position: Position) -> Iterator[bytes]:
        yield position.header()
        yield from self._taken.rest()
        for line in lines.read(fd, start, self._max_bytes):
            message = self._sorted(line)
            if isinstance(message, Message):
                yield message.encode()
            elif message is not None:
                self._reject(line, message)

    def _suspect(self, position: Position, portion: Portion) -> tuple[Position, Portion]:
        """Count the readers that ended with this delivery in hand, and draw the consequence."""
        if position.batch == self._known:
            return position, portion
        position = replace(position, tries=position.tries + 1)
        if position.tries >= _REJECTED_AFTER:
            (culprit,), end = self._taken.messages(most=1)
            self._reject(culprit.encode(), f"{position.tries} readers ended with it in hand")
            position = Position(batch=position.batch, at=end)
        self._taken.move(position)
        if position.tries >= _SINGLY_AFTER:
            portion = replace(portion, messages=1)
        return position, portion

    def _reject(self, line: bytes, why: str) -> None:
        files.append(self._rejected, line.rstrip(b"\n") + b"\n", durable=self._durable)
        if self._tell is not None:
            self._tell(why)

    def _sorted(self, line: bytes) -> Message | str | None:
        return lines.sort(line, to=self.owner, max_bytes=self._max_bytes)
