"""The spool: mail that its reader has taken from the inbox and not yet stored.

**Taking.** The whole inbox is set aside under its lock. A kill can interrupt these steps anywhere:

1. append a marker that names the batch to the inbox;
2. write the batch, marker included, to the spool file (to a temporary file, then renamed);
3. truncate the inbox in place.

If the marker of a spool file is still in the inbox, step 3 is missing: everything up to the marker
is in the spool file already, and the next batch begins after it. A marker without a spool file has
no effect. A reader with a durable inbox syncs each step before the next one. Otherwise a power cut
could undo one step and keep a later one, which loses mail or takes it twice.

**Delivering.** The first line of the spool file is a header of fixed width, see `Position`. It is
changed in place when a delivery is done; after the last delivery the file is removed. None of that
is synced: if a power cut undoes it, the mail is delivered again, and its reader recognizes the ids.

**Poison.** A message may crash its reader again and again. The header counts readers that ended
while holding a delivery. Most of them end for other reasons, so after two of them the messages are
only delivered one at a time. The supervisor knows whether a process crashed of its own accord
(`Mailbox.blame`): after two such crashes while holding one message, that message is rejected.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from teamd.errors import StoreError, translate_os_errors
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.mail import lines
from teamd.messages import MAX_MESSAGE_BYTES, Message, new_id

_WIDTHS: Final = {"at": 15, "tries": 3, "singly": 15, "holder": 10, "crashes": 3, "rejected": 15}
_HEADER: Final = re.compile(
    (
        r'{"batch": "([\w.-]*)"'
        + "".join(rf', "{key}": "(\d{{{width}}})"' for key, width in _WIDTHS.items())
        + r'(?:, "inbox": "(\d{15}):([0-9a-f]{32})")?}\n'
    ).encode()
)
_WRITTEN: Final = "".join(f', "{key}": "%0{width}d"' for key, width in _WIDTHS.items())
_LARGEST: Final = tuple(10**width - 1 for width in _WIDTHS.values())
_figures: Final = attrgetter(*_WIDTHS)
_LONGEST_HEADER: Final = 1 << 12
_LONGEST_ALONE: Final = 256
_SINGLY_AFTER: Final = 2  # readers that ended, for any reason, holding the same delivery
_CONVICTED_AFTER: Final = 2  # readers that crashed of their own accord holding this one message
_MOST_REFUSED: Final = 1000  # rejected lines in one delivery
_MOST_REFUSED_BYTES: Final = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """The maximum size of a delivery; it contains at least one message.

    Attributes:
        messages: the number of messages.
        bytes: the total length of their lines.
        wary: whether readers are counted, see "Poison" above.
    """

    messages: int | None = None
    bytes: int | None = None
    wary: bool = False


NO_LIMIT: Final = BatchLimit()


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """The result of reading from a position on.

    Attributes:
        messages: in order.
        refused: the lines among them that are not messages, with the reasons.
        end: the offset after all of these.
    """

    messages: tuple[Message, ...]
    refused: tuple[tuple[bytes, str], ...]
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The start of a batch's next delivery, and the record of its readers.

    Attributes:
        at: an offset into the spool file.
        tries: how many readers have ended holding this delivery.
        singly: messages up to this offset are delivered one at a time.
        holder: the process that last held the delivery; 0 before the first.
        crashes: how many processes crashed of their own accord holding a single message.
        rejected: the size of the file of rejected lines before this delivery.
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
        """Whether the next message is delivered alone."""
        return self.at < self.singly

    @property
    def verdict(self) -> str | None:
        """The reason for rejecting the next message; `None` to deliver it."""
        if not self.alone or self.crashes < _CONVICTED_AFTER:
            return None
        return f"{self.crashes} processes crashed with this message in hand"

    def handed_over(self, find_end: Callable[[], int]) -> Position:
        """Return the position with this process as the holder of the delivery.

        Args:
            find_end: returns the end of the delivery.
        """
        tries = self.tries + 1 if self.holder else self.tries
        taken = replace(self, tries=tries, holder=os.getpid())
        if tries < _SINGLY_AFTER or self.alone:
            return taken
        # Crashes before this point were with several messages, and do not count.
        return replace(taken, singly=find_end(), crashes=0)

    def advanced(self, end: int, *, rejected: int) -> Position:
        """Return the position after a finished delivery."""
        return replace(self, at=end, rejected=rejected, tries=0, holder=0, crashes=0)

    def header(self) -> bytes:
        figures = _WRITTEN % tuple(map(min, _figures(self), _LARGEST))
        return f'{{"batch": "{self.batch}"{figures}}}\n'.encode()


def first_position(batch: str, *, rejected: int = 0) -> Position:
    """Return the position at the start of a new batch."""
    return Position(batch=batch, at=len(Position(batch=batch, at=0).header()), rejected=rejected)


@dataclass(slots=True)
class Spool:
    """The spool file of one reader. The lock of its inbox, whose descriptor is `fd`, guards both.

    Attributes:
        durable: whether each step waits for the disk.
        max_bytes: a longer line is not a message.
        granted: returns the longest line that newer settings may have allowed senders.
    """

    paths: TeamPaths
    owner: str
    _: KW_ONLY
    durable: bool = True
    max_bytes: int = MAX_MESSAGE_BYTES
    granted: Callable[[], int] = lambda: 0
    _names: lines.Names = field(default_factory=partial(lines.Names, ""))
    _truncated: str = ""  # the batch whose marker is no longer in the inbox
    _durable_name: str = ""  # a batch of an earlier reader, whose spool file's name is synced

    @property
    def path(self) -> Path:
        return self.paths.taken(self.owner)

    @property
    def _inbox(self) -> Path:
        return self.paths.inbox(self.owner)

    def position(self) -> Position | None:
        """Return the position of the next delivery; `None` if no batch is set aside."""
        found = self._read_header()
        return None if found is None or found[1] else found[0]

    def current(self, fd: int) -> Position | None:
        """Return the position of the next delivery; take new mail when the last batch is done.

        Returns `None` if there is no mail.
        """
        found = self._read_header()
        if found is None:
            return self._set_aside(fd, 0)
        position, end, digest = found
        if end:
            return self._adopt(fd, position, end, digest)
        fresh = self._behind_marker(fd, position.batch)
        if fresh is not None and position.batch != self._durable_name:
            # Its reader was killed before step 3, perhaps before the file's name was synced.
            if self.durable:
                directories.sync_directory(self._inbox.parent)
            self._durable_name = position.batch
        if fresh is not None and fresh == os.fstat(fd).st_size:
            self._truncate(fd, position.batch)
            fresh = None
        if position.at < files.size(self.path):
            return position
        return self._set_aside(fd, fresh or 0)

    def advance(self, fd: int, position: Position, end: int, rejected: int) -> None:
        """Forget the delivery that ends at `end`; remove the file after the last one."""
        whole = end >= files.size(self.path)
        if whole and self._behind_marker(fd, position.batch) is None:
            files.remove(self.path)
        else:
            self.move(position.advanced(end, rejected=rejected))

    def move(self, position: Position) -> None:
        """Overwrite the position in place."""
        with translate_os_errors(self.path):
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                files.write_all(fd, position.header(), 0)
            finally:
                os.close(fd)

    def find(self, position: Position, limit: BatchLimit = NO_LIMIT) -> ReadBatch:
        """Read on from a position: at least one message, however long it is.

        After very many lines that are not messages, the result may have no message although more
        follow after `end`.
        """
        messages: list[Message] = []
        refused: list[tuple[bytes, str]] = []
        refused_bytes = 0
        end = position.at
        for at, line, found in self._sort(position):
            if isinstance(found, Message):
                over = limit.bytes is not None and at + len(line) - position.at > limit.bytes
                if messages and (over or len(messages) == limit.messages):
                    break
                messages.append(found)
            elif found is not None:
                refused_bytes += len(line)
                if refused and (
                    len(refused) == _MOST_REFUSED or refused_bytes > _MOST_REFUSED_BYTES
                ):
                    break
                refused.append((line, found))
            end = at + len(line)
        return ReadBatch(tuple(messages), tuple(refused), end)

    def messages(self, position: Position, most: int | None = None) -> Iterator[Message]:
        """Yield the messages from a position on, from at most `most` lines."""
        for _, _, found in islice(self._sort(position), most):
            if isinstance(found, Message):
                yield found

    def count(self) -> int:
        """Count the remaining lines in spool and inbox without a lock, for display."""
        position = self.position()
        taken = 0 if position is None else lines.count(self.path, position.at)
        return taken + lines.count(self._inbox)

    def longest_line(self, line: bytes) -> int:
        """Return how long a line may be.

        The settings at the time of sending apply, because the sender was told that the message is
        safe.
        """
        if len(line) > self.max_bytes:
            self.max_bytes = max(self.max_bytes, self.granted())
        return self.max_bytes

    def _read_header(self) -> tuple[Position, int, bytes] | None:
        """Return the position, and which part of the inbox it refers to, see `_adopt`."""
        with files.opened(self.path) as fd:
            start = b"" if fd is None else os.pread(fd, _LONGEST_HEADER, 0)
        if not start:
            return None
        found = _HEADER.fullmatch(start.partition(b"\n")[0] + b"\n")
        if found is None:
            if len(start) > _LONGEST_ALONE or b"\n" in start[:-1]:
                raise StoreError(f"{self.path} is damaged; `teamd restart` sets it aside")
            return None  # a torn header that an earlier version wrote without mail
        batch, *figures, end, digest = found.groups(b"")
        counts = dict(zip(_WIDTHS, map(int, figures), strict=True))
        return Position(batch=batch.decode(), **counts), int(end or 0), digest

    def _adopt(self, fd: int, position: Position, end: int, digest: bytes) -> Position | None:
        """Take over from an earlier version of teamd, which left mail in the inbox while reading.

        Its header contains the length of the inbox part that it read, and the digest of that part.
        If the digest differs, the header belongs to an older batch and is ignored.
        """
        content = hashlib.blake2b(digest_size=16)
        for part in lines.read_raw(fd, 0, end):
            content.update(part)
        if content.hexdigest().encode() != digest or os.fstat(fd).st_size < end:
            return self._set_aside(fd, 0)
        if position.at >= end:
            return self._set_aside(fd, end)
        tries, holder, crashes = position.tries, position.holder, position.crashes
        return self._set_aside(fd, position.at, tries=tries, holder=holder, crashes=crashes)

    def _set_aside(self, fd: int, start: int, **known: Any) -> Position | None:
        """Move the inbox from `start` on into the spool file; return `None` if it has no mail.

        Args:
            fd: the inbox.
            start: the start of the batch; earlier mail is done.
            known: fields of the position from earlier readers.
        """
        if all(map(lines.is_blank_or_marker, lines.read(fd, start))):
            if os.fstat(fd).st_size:  # otherwise these lines would wake the reader again
                self._truncate(fd)
            files.remove(self.path)
            return None
        position = first_position(new_id(), rejected=files.size(self.paths.rejected(self.owner)))
        position = replace(position, **known)
        files.write_at_end(fd, lines.marker(position.batch))
        if self.durable:
            files.sync(fd)
        content = lines.read_raw(fd, start, os.fstat(fd).st_size)
        files.replace_by_parts(self.path, chain([position.header()], content), durable=self.durable)
        self._truncate(fd, position.batch)
        return position

    def _truncate(self, fd: int, batch: str = "") -> None:
        os.ftruncate(fd, 0)
        if self.durable:
            files.sync(fd)
        self._truncated = batch

    def _behind_marker(self, fd: int, batch: str) -> int | None:
        """Return where the mail after a batch begins; `None` once the batch is truncated."""
        if batch == self._truncated:
            return None
        fresh = lines.behind_marker(fd, batch)
        if fresh is None:
            if self.durable:
                files.sync(fd)  # an earlier reader may have been killed before its sync
            self._truncated = batch
        return fresh

    def _sort(self, position: Position) -> Iterator[tuple[int, bytes, Message | str | None]]:
        """Yield each line from a position on with its offset and meaning, see `lines.sort`."""
        if self._names.batch != position.batch:
            self._names = lines.Names(position.batch)
        with files.opened(self.path) as fd:
            if fd is None:
                return
            end = os.fstat(fd).st_size
            at, longest = position.at, max(self.max_bytes, MAX_MESSAGE_BYTES)
            for line in lines.read(fd, at, longest):
                nameless, undated = self._names.of(at, lambda at: lines.read_raw(fd, at, end))
                most = self.longest_line(line)
                found = lines.sort(
                    line, to=self.owner, max_bytes=most, nameless=nameless, undated=undated
                )
                yield at, line, found
                at += len(line)
