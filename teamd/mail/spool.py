"""The spool: what a reader took from its inbox and has not put in its place yet, and the way there.

The taken file's first line is a header of fixed width, see `Position`; the lines of the inbox
follow as they came. The header is changed in place once a delivery stands where it belongs. A
message that came without id has one that follows from its batch and its place, the same at every
reading.

What is done with new mail, so that no kill and no power cut loses any, in an order in which every
interruption can be told from every other:

1. append a marker that names the batch to the inbox;
2. write the batch, named, to the taken file (aside, then renamed), see `taken`;
3. truncate the inbox in place.

A taken file whose marker still stands in the inbox was not truncated: all up to the marker is in
the file already, and the next batch begins behind it. A marker without its file was never taken:
it is passed over.

Each step is on the disk before the next one begins, or a power cut could undo one and not the
next: without the marker the inbox would be taken again, without the file's name its content would
be lost, without the truncation, the file could be removed first and the marker would stand without
its file. So there are four syncs, and none of them can be spared.

Lines are copied as they stand: the lock is held for a moment only, however much there is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from teamd.errors import StoreError, translate_os_errors
from teamd.files import directories, files
from teamd.files.safe_open import safe_open
from teamd.mail import lines
from teamd.mail.poison import Position, first_position
from teamd.messages import MAX_MESSAGE_BYTES, Message, moment_of, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LONGEST_HEADER: Final = 1 << 12
_MOST_REFUSED: Final = 1000  # lines that are no message, in one reading
_MOST_REFUSED_BYTES: Final = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """The most that one delivery holds; it holds at least one message.

    Attributes:
        messages: how many.
        bytes: of their lines.
        wary: whether it is noted who has it in hand. What two readers did not survive comes
            singly then, and a message that crashes its reader is rejected in the end.
    """

    messages: int | None = None
    bytes: int | None = None
    wary: bool = False


NO_LIMIT: Final = BatchLimit()


@dataclass(frozen=True, slots=True)
class Found:
    """The lines from a position on.

    Attributes:
        messages: in order.
        refused: lines between them that are no message, and why.
        end: the offset behind all of these.
    """

    messages: tuple[Message, ...]
    refused: tuple[tuple[bytes, str], ...]
    end: int


@dataclass(slots=True)
class Spool:
    """One reader's file of taken mail; its inbox's lock guards it."""

    path: Path
    owner: str
    max_bytes: int = MAX_MESSAGE_BYTES
    granted: Callable[[], int] = lambda: 0

    def position(self) -> Position | None:
        """Return where to go on, `None` where there is no such file."""
        with files.opened(self.path) as fd:
            if fd is None:
                return None
            line, _, _ = os.pread(fd, _LONGEST_HEADER, 0).partition(b"\n")
            found = Position.decode(line + b"\n")
        if found is None:
            raise StoreError(f"{self.path} is damaged; `teamd restart` sets it aside")
        return found

    def find(self, position: Position, limit: BatchLimit = NO_LIMIT) -> Found:
        """Read on from a position: one message at least, however long it is.

        Only where a great many lines are no message it may be none; then there is more behind.
        """
        messages: list[Message] = []
        refused: list[tuple[bytes, str]] = []
        refused_bytes = 0
        end = position.at
        for at, line in self._lines(position):
            sorted_as = self._sort(line, at, position)
            if isinstance(sorted_as, Message):
                over = limit.bytes is not None and at + len(line) - position.at > limit.bytes
                if messages and (over or len(messages) == limit.messages):
                    break
                messages.append(sorted_as)
            elif sorted_as is not None:
                refused_bytes += len(line)
                if refused and (
                    len(refused) == _MOST_REFUSED or refused_bytes > _MOST_REFUSED_BYTES
                ):
                    break
                refused.append((line, sorted_as))
            end = at + len(line)
        return Found(tuple(messages), tuple(refused), end)

    def messages(self, position: Position, most: int | None = None) -> Iterator[Message]:
        """The messages from a position on, no more than so many; nothing is said of the rest."""
        for at, line in islice(self._lines(position), most):
            found = self._sort(line, at, position)
            if isinstance(found, Message):
                yield found

    def count(self) -> int:
        """Count the lines that are left; for display."""
        position = self.position()
        return 0 if position is None else lines.count(self.path, position.at)

    def move(self, position: Position) -> None:
        """Write another position, in place."""
        with translate_os_errors(self.path):
            fd = safe_open(self.path, os.O_WRONLY)
            try:
                os.pwrite(fd, position.header(), 0)
            finally:
                os.close(fd)

    def _lines(self, position: Position) -> Iterator[tuple[int, bytes]]:
        with files.opened(self.path) as fd:
            if fd is not None:
                at = position.at
                for line in lines.read(fd, at, max(self.max_bytes, MAX_MESSAGE_BYTES)):
                    yield at, line
                    at += len(line)

    def limit(self, line: bytes) -> int:
        """Return how long a line may be.

        Its sender was told that it is safe, by the settings of then.
        """
        if len(line) > self.max_bytes:
            self.max_bytes = max(self.max_bytes, self.granted())
        return self.max_bytes

    def _sort(self, line: bytes, at: int, position: Position) -> Message | str | None:
        return lines.sort(
            line,
            to=self.owner,
            max_bytes=self.limit(line),
            nameless=f"{position.batch}-{at}",
            undated=moment_of(position.batch),
        )


@dataclass(slots=True)
class Intake:
    """One owner's way in; all of it happens under the lock of the inbox, whose descriptor is `fd`.

    Attributes:
        rejected: the file of lines that were no message.
        durable: whether each step waits for the disk itself.
    """

    inbox: Path
    spool: Spool
    rejected: Path
    durable: bool
    _truncated: str = ""  # a batch whose marker is gone, for ever
    _named: str = ""  # a batch that another reader has named, and whose name is safe now

    def current(self, fd: int) -> Position | None:
        """Return where the next delivery begins; set new mail aside once what was taken is done."""
        before = self.spool.position()
        if before is None:
            return self._set_aside(fd, 0)
        fresh = self._behind_marker(fd, before.batch)
        if fresh is not None and before.batch != self._named:
            # Its reader was killed before step 3, maybe before the file's name was on the disk.
            if self.durable:
                directories.sync_directory(self.inbox.parent)
            self._named = before.batch
        if fresh is not None and fresh == os.fstat(fd).st_size:
            self._truncate(fd)
            fresh = None
        if before.at < files.size(self.spool.path):
            return before
        position = self._set_aside(fd, fresh or 0)
        if position is None:
            files.remove(self.spool.path)
        return position

    def advance(self, fd: int, position: Position, end: int, rejected: int) -> None:
        """Move on in the taken file, and remove it when it is done with."""
        if end < files.size(self.spool.path) or self._behind_marker(fd, position.batch) is not None:
            self.spool.move(
                Position(batch=position.batch, at=end, singly=position.singly, rejected=rejected)
            )
        else:
            files.remove(self.spool.path)

    def _behind_marker(self, fd: int, batch: str) -> int | None:
        """Return where the mail begins that came after a batch; `None` once that was truncated."""
        if batch == self._truncated:
            return None
        fresh = lines.behind_marker(fd, batch)
        if fresh is None:
            if self.durable:
                files.sync(fd)  # whoever truncated may have been killed before it did
            self._truncated = batch
        return fresh

    def _set_aside(self, fd: int, start: int) -> Position | None:
        """Put the lines from `start` on into the taken file; nothing in that is needed any more."""
        if all(map(lines.is_nothing, lines.read(fd, start))):
            if os.fstat(fd).st_size:  # blank ones, dead markers: nobody is to wake for them again
                self._truncate(fd)
            return None
        position = first_position(new_id(), rejected=files.size(self.rejected))
        end = os.fstat(fd).st_size
        files.write_at_end(fd, lines.marker(position.batch))
        if self.durable:
            files.sync(fd)
        parts = chain([position.header()], lines.read_raw(fd, start, end))
        files.replace_by_parts(self.spool.path, parts, durable=self.durable)
        self._truncate(fd)
        self._truncated = position.batch
        return position

    def _truncate(self, fd: int) -> None:
        os.ftruncate(fd, 0)
        if self.durable:
            files.sync(fd)
