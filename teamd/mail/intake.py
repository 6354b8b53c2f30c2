"""The way from an inbox into the taken file, so that no kill and no power cut loses any mail.

What is done with new mail, in an order in which every interruption can be told from every other:

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

Lines are copied as they stand: the lock is held for a moment only, however much there is. Those
that turn out to be no message are kept as they came, each once.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING

from teamd.files import directories, files, locks
from teamd.files.os_errors import translate_os_errors
from teamd.mail import lines
from teamd.mail.spool import Position, first_position
from teamd.messages import new_id

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from teamd.mail.spool import Spool


class Intake:
    """One owner's way in; all of it happens under the lock of the inbox, whose descriptor is `fd`.

    Args:
        rejected: the file of lines that were no message.
        durable: whether each step waits for the disk itself.
    """

    def __init__(self, inbox: Path, spool: Spool, rejected: Path, *, durable: bool) -> None:
        self._inbox = inbox
        self._spool = spool
        self._rejected = rejected
        self._durable = durable
        self._truncated = ""  # a batch whose marker is gone, for ever
        self._named = ""  # a batch that another reader has named, and whose name is safe now

    def current(self, fd: int) -> Position | None:
        """Where the next delivery begins; new mail is set aside once what was taken is done."""
        before = self._spool.position()
        if before is None:
            return self._set_aside(fd, 0)
        fresh = self._behind_marker(fd, before.batch)
        if fresh is not None and before.batch != self._named:
            # Its reader was killed before step 3, maybe before the file's name was on the disk.
            if self._durable:
                directories.sync_directory(self._inbox.parent)
            self._named = before.batch
        if fresh is not None and fresh == os.fstat(fd).st_size:
            self._truncate(fd)
            fresh = None
        if before.at < self._spool.size():
            return before
        position = self._set_aside(fd, fresh or 0)
        if position is None:
            files.remove(self._spool.path)
        return position

    def advance(self, fd: int, position: Position, end: int, rejected: int) -> None:
        """Move on in the taken file, and remove it when it is done with."""
        if end < self._spool.size() or self._behind_marker(fd, position.batch) is not None:
            self._spool.move(
                Position(batch=position.batch, at=end, singly=position.singly, rejected=rejected)
            )
        else:
            files.remove(self._spool.path)

    def reject(self, refused: Iterable[bytes], *, at: int) -> int:
        """Have these lines stand in the file of rejected ones from an offset on, and none behind.

        A reader that was killed may have put them there already: whoever comes after it begins
        at the same offset, and they are there once.

        Returns:
            Where the next one goes.

        Raises:
            StoreError: they cannot be written.
        """
        content = b"".join(line.rstrip(b"\n") + b"\n" for line in refused)
        with locks.locked(self._rejected) as fd, translate_os_errors(self._rejected):
            if self._durable and not os.fstat(fd).st_size:
                directories.sync_directory(self._rejected.parent)
            if os.fstat(fd).st_size > at:
                os.ftruncate(fd, at)
            files.write_at_end(fd, content)
            if self._durable:
                files.sync(fd)
            return os.fstat(fd).st_size

    def _behind_marker(self, fd: int, batch: str) -> int | None:
        """Where the mail begins that came after a batch; `None` once that was truncated away."""
        if batch == self._truncated:
            return None
        fresh = lines.behind_marker(fd, batch)
        if fresh is None:
            if self._durable:
                files.sync(fd)  # whoever truncated may have been killed before it did
            self._truncated = batch
        return fresh

    def _set_aside(self, fd: int, start: int) -> Position | None:
        """Put the lines from `start` on into the taken file; nothing in that is needed any more."""
        if all(map(lines.is_nothing, lines.read(fd, start))):
            if os.fstat(fd).st_size:  # blank ones, dead markers: nobody is to wake for them again
                self._truncate(fd)
            return None
        position = first_position(new_id(), rejected=files.size(self._rejected))
        end = os.fstat(fd).st_size
        files.write_at_end(fd, lines.marker(position.batch))
        if self._durable:
            files.sync(fd)
        parts = chain([position.header()], lines.read_raw(fd, start, end))
        files.replace_by_parts(self._spool.path, parts, durable=self._durable)
        self._truncate(fd)
        self._truncated = position.batch
        return position

    def _truncate(self, fd: int) -> None:
        os.ftruncate(fd, 0)
        if self._durable:
            files.sync(fd)
