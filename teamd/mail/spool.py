"""The spool: what a reader took from its inbox and has not put in its place yet.

The taken file's first line is a header of fixed width, see `Position`. It is changed in place once
a delivery stands where it belongs. A batch either follows in the file, line by line as it came, or
is in the inbox still, see `intake`. A message that came without id has one that follows from its
place, the same at every reading, see `lines.Names`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from teamd.errors import StoreError, translate_os_errors
from teamd.files import files
from teamd.files.file_stamp import KeptVersion
from teamd.files.open_files import KeptDescriptor
from teamd.mail import lines
from teamd.mail.poison import Position
from teamd.messages import (
    MAX_INBOX_BYTES,
    MAX_MESSAGE_BYTES,
    Message,
    new_id,
)

_LONGEST_HEADER: Final = 1 << 12
_LONGEST_ALONE: Final = len(Position(batch=new_id(), at=0, end=1, content="0" * 32).header())
_MOST_REFUSED: Final = 1000  # lines that are no message, in one reading
_MOST_REFUSED_BYTES: Final = 1 << 22
_MOST_AT_ONCE: Final = MAX_INBOX_BYTES


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
class ReadBatch:
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
    folder: KeptVersion | None = None
    _kept: KeptDescriptor = field(init=False)
    _known: tuple[bytes, Position | None] = (b"", None)  # a header, and what it says
    _names: lines.Names = field(default_factory=partial(lines.Names, ""))

    def __post_init__(self) -> None:
        self._kept = KeptDescriptor(self.path, self.folder)

    @property
    def inbox(self) -> Path:
        """The file from which the mail is taken."""
        return self.path.with_name(f"{self.owner}.jsonl")

    def position(self) -> Position | None:
        """Return where to go on, `None` where there is no such file, or nothing in it."""
        fd = self._kept.open()
        if fd is None:
            return None
        with translate_os_errors(self.path):
            start = os.pread(fd, _LONGEST_HEADER, 0)
        if not start:
            return None
        header = start.partition(b"\n")[0] + b"\n"
        if header == self._known[0]:
            return self._known[1]
        found = Position.decode(header)
        if found is None and _has_no_body(start):
            return None  # a power cut came before the header of a batch that is in the inbox
        if found is None:
            raise StoreError(f"{self.path} is damaged; `teamd restart` sets it aside")
        self._known = header, found
        return found

    def read(self, inbox: int, position: Position, limit: BatchLimit) -> bytes:
        """Return the lines of the next delivery as they stand, for `find` when the lock is free.

        Nothing where they are not to be read at once: what is no message could be without end.

        Args:
            inbox: the descriptor of the locked inbox.
            position: where the delivery begins.
            limit: the most that it holds.
        """
        fd = inbox if position.in_inbox else self._kept.open()
        if fd is None:
            return b""
        left = (position.end or os.fstat(fd).st_size) - position.at
        most = _MOST_AT_ONCE if limit.bytes is None else limit.bytes
        if left > most and limit.bytes is None:
            return b""
        block = os.pread(fd, min(left, most), position.at)
        if len(block) < left:
            block = block[: block.rfind(b"\n") + 1]
        if limit.messages is not None:
            *lines_of_it, rest = block.split(b"\n", limit.messages)
            block = block[: len(block) - len(rest)] if len(lines_of_it) == limit.messages else block
        if len(block) < left:  # else they would seem to be mail that waits
            start = position.at + len(block)
            block += lines.markers_at(fd, start, position.at + left)
        return block

    def find(self, position: Position, limit: BatchLimit = NO_LIMIT, raw: bytes = b"") -> ReadBatch:
        """Read on from a position: one message at least, however long it is.

        Only where a great many lines are no message it may be none; then there is more behind.

        Args:
            position: where.
            limit: the most that is found.
            raw: what `read` has returned of them.
        """
        messages: list[Message] = []
        refused: list[tuple[bytes, str]] = []
        refused_bytes = 0
        end = position.at
        for at, line, sorted_as in self._sorted(position, raw):
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
        return ReadBatch(tuple(messages), tuple(refused), end)

    def messages(self, position: Position, most: int | None = None) -> Iterator[Message]:
        """The messages from a position on, no more than so many; nothing is said of the rest."""
        for _, _, found in islice(self._sorted(position), most):
            if isinstance(found, Message):
                yield found

    def count(self) -> int:
        """Count the lines that are left, here and in the inbox; for display."""
        position = self.position()
        if position is not None and position.in_inbox:
            return lines.count(self.inbox, position.at)
        taken = 0 if position is None else lines.count(self.path, position.at)
        return taken + lines.count(self.inbox)

    def move(self, position: Position) -> None:
        """Write another position, in place."""
        fd = self._kept.open_to_write()
        with translate_os_errors(self.path):
            files.write_all(fd, header := position.header(), 0)
        self._known = header, position

    def clear(self) -> None:
        """Forget the position; the file stays, so that no name changes: senders watch for that."""
        fd = self._kept.open_to_write()
        with translate_os_errors(self.path):
            os.ftruncate(fd, 0)

    def forget(self) -> None:
        """Remove what is there, if anything is in it."""
        if files.size(self.path):
            files.remove(self.path)

    def _lines(self, position: Position) -> Iterator[bytes]:
        with files.opened(self.inbox if position.in_inbox else self.path) as fd:
            if fd is not None:
                longest = max(self.max_bytes, MAX_MESSAGE_BYTES)
                yield from lines.read(fd, position.at, longest, position.end)

    def _behind(self, position: Position, raw: bytes, at: int) -> Iterator[bytes]:
        """The bytes of a batch from an offset on; of what was read already, as it was then."""
        yield from lines.parts(raw, at - position.at)
        start = max(at, position.at + len(raw))
        with files.opened(self.inbox if position.in_inbox else self.path) as fd:
            if fd is not None:
                yield from lines.read_raw(fd, start, position.end or os.fstat(fd).st_size)

    def _sorted(
        self, position: Position, raw: bytes = b""
    ) -> Iterator[tuple[int, bytes, Message | str | None]]:
        """Yield each line from a position on with its offset and what it is, see `lines.sort`."""
        at = position.at
        if self._names.batch != position.batch:
            self._names = lines.Names(position.batch)
        behind = partial(self._behind, position, raw)
        for line in io.BytesIO(raw) if raw else self._lines(position):
            nameless, undated = self._names.of(at, behind)
            longest = self.limit(line)
            yield (
                at,
                line,
                lines.sort(
                    line, to=self.owner, max_bytes=longest, nameless=nameless, undated=undated
                ),
            )
            at += len(line)

    def limit(self, line: bytes) -> int:
        """Return how long a line may be.

        Its sender was told that it is safe, by the settings of then.
        """
        if len(line) > self.max_bytes:
            self.max_bytes = max(self.max_bytes, self.granted())
        return self.max_bytes


def _has_no_body(start: bytes) -> bool:
    """Return whether a file that begins so holds no mail behind its first line."""
    return len(start) <= _LONGEST_ALONE and b"\n" not in start[:-1]
