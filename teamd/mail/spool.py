"""What a reader took from its inbox and has not put in its place yet: a queue with a position.

The file's first line is a header of fixed width, see `Position`; the lines of the inbox follow as
they came. The header is changed in place once a delivery stands where it belongs. A message that
came without id has one that follows from its batch and its place, the same at every reading.

The position also tells which message may have ended its readers, and when that is certain. Readers
end for many reasons: most of them are outside, and no message's fault. So what two of them ended
with in hand, in whatever way, is only delivered singly from then on. Whoever reaps a process knows
whether it crashed by itself, and says so (`Mailbox.blame`): two such crashes with one and the same
message alone in hand convict it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from teamd.errors import StoreError
from teamd.files import files
from teamd.files.os_errors import translate_os_errors
from teamd.mail import lines
from teamd.messages import MAX_MESSAGE_BYTES, Message, moment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_WIDTHS: Final = {"at": 15, "tries": 3, "singly": 15, "holder": 10, "crashes": 3, "rejected": 15}
_HEADER: Final = re.compile(
    (
        r'{"batch": "([^"\\]*)"'
        + "".join(rf', "{key}": "(\d{{{width}}})"' for key, width in _WIDTHS.items())
        + "}\n"
    ).encode()
)
_LONGEST_HEADER: Final = 1 << 12
_MOST_REFUSED: Final = 1000  # lines that are no message, in one reading
_MOST_REFUSED_BYTES: Final = 1 << 22
_SINGLY_AFTER: Final = 2  # readers that ended, in whatever way, with the same delivery in hand
_CONVICTED_AFTER: Final = 2  # readers that crashed by themselves with this one message in hand


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a batch's next delivery begins, and what is known of it.

    Attributes:
        at: an offset into the file.
        tries: how many readers have ended with this delivery in hand.
        singly: messages up to this offset are delivered one at a time.
        holder: the process that has, or had, the delivery in hand; 0 for none so far.
        crashes: how many processes crashed by themselves with one such message in hand.
        rejected: how long the file of rejected lines was before this delivery.
    """

    batch: str
    at: int
    tries: int = 0
    singly: int = 0
    holder: int = 0
    crashes: int = 0
    rejected: int = 0

    @property
    def alone(self) -> bool:
        """Whether the next message is delivered without others."""
        return self.at < self.singly

    @property
    def verdict(self) -> str | None:
        """Why the next message is rejected, if it is."""
        if not self.alone or self.crashes < _CONVICTED_AFTER:
            return None
        return f"{self.crashes} processes crashed with this message in hand"

    def header(self) -> bytes:
        """The file's first line."""
        figures = (
            f', "{key}": "{min(getattr(self, key), 10**width - 1):0{width}}"'
            for key, width in _WIDTHS.items()
        )
        return f'{{"batch": "{self.batch}"{"".join(figures)}}}\n'.encode()


def first_position(batch: str, *, rejected: int = 0) -> Position:
    """The position of a batch of which nothing has been delivered."""
    return Position(batch=batch, at=len(Position(batch=batch, at=0).header()), rejected=rejected)


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
    """What stands from a position on.

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
    granted: Callable[[], int] | None = None

    def position(self) -> Position | None:
        """Where to go on, `None` where there is no such file."""
        with files.opened(self.path) as fd:
            return None if fd is None else self._header(fd)

    def size(self) -> int:
        """Behind the last line."""
        with files.opened(self.path) as fd:
            return 0 if fd is None else os.fstat(fd).st_size

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
        """How many lines are left; for display."""
        position = self.position()
        return 0 if position is None else lines.count(self.path, position.at)

    def move(self, position: Position) -> None:
        """Write another position, in place."""
        with translate_os_errors(self.path):
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(fd, position.header(), 0)
            finally:
                os.close(fd)

    def note_reader(self, position: Position, limit: BatchLimit) -> Position:
        """Count the readers that ended with this delivery in hand; note who has it now."""
        if position.holder:
            position = replace(position, tries=position.tries + 1)
        if position.tries >= _SINGLY_AFTER and not position.alone:
            whole = self.find(position, limit)
            # From now on a crash tells which message it was: those before do not.
            position = replace(position, singly=whole.end, crashes=0)
        position = replace(position, holder=os.getpid())
        self.move(position)
        return position

    def _lines(self, position: Position) -> Iterator[tuple[int, bytes]]:
        with files.opened(self.path) as fd:
            if fd is not None:
                at = position.at
                for line in lines.read(fd, at, max(self.max_bytes, MAX_MESSAGE_BYTES)):
                    yield at, line
                    at += len(line)

    def limit(self, line: bytes) -> int:
        """How long a line may be; who sent it was told that it is safe, by the settings of then."""
        if len(line) > self.max_bytes and self.granted is not None:
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

    def _header(self, fd: int) -> Position:
        line, _, _ = os.pread(fd, _LONGEST_HEADER, 0).partition(b"\n")
        found = _HEADER.fullmatch(line + b"\n")
        if found is None:
            raise StoreError(f"{self.path} is damaged; `teamd restart` sets it aside")
        figures = dict(zip(_WIDTHS, map(int, found.groups()[1:]), strict=True))
        return Position(batch=found[1].decode(), **figures)
