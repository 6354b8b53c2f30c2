"""The way in: how mail comes from an inbox into a reader's hands, and is forgotten there.

**In the inbox.** Mail stays where it is until its reader has it in a conversation, which is on the
disk and knows each message again by its id. The header of the taken file says which part of the
inbox is in hand, and by whom. When all is done with, the header says so, then inbox and header are
emptied: a kill in between brings nothing back. None of this waits for the disk: whatever a power
cut takes back of it, the same mail is read again, and known. A header that it left of an earlier
batch is told by the digest of the inbox that it speaks of.

Where mail came without ids, a marker is appended behind it first, from which they follow, see
`lines.Names`. The marker is on the disk before anything is written that holds such an id: behind
another one, the same mail has other ids. Its sync may go on meanwhile, for a reader that waits for
it there.

**Set aside.** What is no message, had a reader that ended or is a great deal is set aside, and so
is mail without an id behind mail with one, in an order in which every interruption can be told from
every other:

1. append a marker that names the batch to the inbox;
2. write the batch, marker and all, to the taken file (aside, then renamed);
3. truncate the inbox in place.

A taken file whose marker still stands in the inbox was not truncated: all up to the marker is in
the file already, and the next batch begins behind it. A marker without its file has taken nothing.
It only names what stands above it, as it would have in the file.

Each step is on the disk before the next one begins, or a power cut could undo one and not the
next: without the marker the inbox would be taken again, without the file's name its content would
be lost, without the truncation, the file could be removed first and the marker would stand without
its file. So there are four syncs, and none of them can be spared in this order.

Lines are copied as they stand: the lock is held for a moment only, however much there is.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from teamd.errors import StoreError
from teamd.files import directories, files
from teamd.files.files import SyncAhead
from teamd.mail import lines
from teamd.mail.poison import Position, first_position
from teamd.mail.spool import Spool
from teamd.messages import new_id

# Bytes of an inbox with mail that is done with at its start: that goes only with all the rest.
_MOST_BEHIND_OTHERS: Final = 1 << 22
_GLANCE: Final = 1 << 16


@dataclass(slots=True)
class Intake:
    """One owner's way in; all of it happens under the lock of the inbox, whose descriptor is `fd`.

    Attributes:
        rejected: the file of lines that were no message.
        durable: whether each step waits for the disk itself.
        most: bytes of an inbox that stay in it while they are worked through, so that others
            have room to write more.
    """

    inbox: Path
    spool: Spool
    rejected: Path
    durable: bool
    most: int
    _begun: str = ""  # a batch in the inbox that this reader has begun
    _digest: lines.Digest | None = None  # of the inbox up to that batch's end
    _marked: str = ""  # a batch in the inbox behind which this reader has put a marker
    _marking: SyncAhead | None = None  # the sync of that marker, if it was begun ahead
    _truncated: str = ""  # a batch whose marker is gone, for ever
    _safe: str = ""  # a batch that another reader has set aside, and whose file's name is safe now

    def current(self, fd: int) -> Position | None:
        """Return where the next delivery begins; set new mail aside once what was taken is done."""
        before = self.spool.position()
        if before is None or before.in_inbox:
            return self._current_in_inbox(fd, before)
        fresh = self._behind_marker(fd, before.batch)
        if fresh is not None and before.batch != self._safe:
            # Its reader was killed before step 3, maybe before the file's name was on the disk.
            if self.durable:
                directories.sync_directory(self.inbox.parent)
            self._safe = before.batch
        if fresh is not None and fresh == os.fstat(fd).st_size:
            self._truncate(fd)
            fresh = None
        if before.at < files.size(self.spool.path):
            return before
        if fresh is not None:
            return self._set_aside(fd, fresh)
        files.remove(self.spool.path)
        return self._begin(fd, 0)

    def stands(self, fd: int, position: Position) -> bool:
        """Return whether a batch that was in the inbox still is.

        A power cut may leave the position of an earlier batch beside an inbox that was emptied.
        """
        if os.fstat(fd).st_size < position.end:
            return False
        known = position.batch == self._begun
        return known or lines.Digest().up_to(fd, position.end) == position.content

    def _current_in_inbox(self, fd: int, before: Position | None) -> Position | None:
        if before is None or not self.stands(fd, before):
            return self._begin(fd, 0)
        if before.at < before.end:
            return before
        if before.batch != self._begun:
            self._digest = None  # of what stood there before another reader came
        return self._begin(fd, before.end)

    def _begin(self, fd: int, start: int) -> Position | None:
        """Begin a batch with all that is in the inbox from `start` on.

        It stays there, unless that is a great deal: its first reader has it in a conversation in
        a moment, and forgets it then. Who gets it notes where that is.
        """
        end = os.fstat(fd).st_size
        great = end > (min(_MOST_BEHIND_OTHERS, self.most) if start else self.most)
        if great:
            return self._set_aside(fd, start)
        batch = new_id()
        if _begins_nameless(fd, start):
            end = self._mark(fd, batch, ahead=True)
            self._marked = batch
        elif self._forget_nothing(fd, start):
            return None
        if self._digest is None or not start:
            self._digest = lines.Digest()
        content = self._digest.up_to(fd, end)
        self._begun = batch
        return Position(batch=batch, at=start, end=end, content=content)

    def sync_of(self, batch: str) -> SyncAhead | None:
        """Return the sync that has to end before an id of this batch is written anywhere."""
        return self._marking if batch == self._marked else None

    def has_named(self, position: Position) -> bool:
        """Return whether each message of a batch in the inbox has an id that is safe.

        By a marker of this reader's own: one that a killed reader left may not be on the disk.
        """
        return position.batch == self._marked

    def _mark(self, fd: int, batch: str, *, ahead: bool = False) -> int:
        """Put a marker behind all that is in the inbox; returns the offset behind it."""
        files.write_at_end(fd, lines.marker(batch))
        if self.durable:
            self._marking = SyncAhead.begin(fd, safe=None) if ahead else None
            if self._marking is None:
                files.sync(fd)
        return os.fstat(fd).st_size

    def _forget_nothing(self, fd: int, start: int) -> bool:
        """Empty an inbox in which nothing is that is needed; return whether that was so."""
        first, newline, _ = os.pread(fd, _GLANCE, start).partition(b"\n")
        if newline and not lines.is_blank_or_marker(first + newline):
            return False
        if not all(map(lines.is_blank_or_marker, lines.read(fd, start))):
            return False
        self._begun = ""
        if os.fstat(fd).st_size:  # blank lines, dead markers: nobody is to wake for them again
            self._truncate(fd)
        self.spool.forget()
        return True

    def advance(self, fd: int, position: Position, end: int, rejected: int) -> None:
        """Move on in what was taken, and forget it when it is done with."""
        if position.in_inbox:
            self._advance_in_inbox(fd, position, end, rejected)
        elif self._ends_at(fd, position, end):
            files.remove(self.spool.path)
        else:
            self.spool.move(position.advanced(end, rejected=rejected))

    def _advance_in_inbox(self, fd: int, position: Position, end: int, rejected: int) -> None:
        self.spool.move(position.advanced(end, rejected=rejected))
        # It is done with. What a disk refuses of the rest the next take does, and says.
        with suppress(OSError, StoreError):
            if end >= os.fstat(fd).st_size:
                # Whoever is killed between the two leaves a position of what is not there any
                # more: the digest tells, and from here on this process looks at it as well.
                self._begun = ""
                os.ftruncate(fd, 0)
                self.spool.clear()

    def _ends_at(self, fd: int, position: Position, end: int) -> bool:
        """Return whether nothing is left of a taken file, for itself or for what it tells."""
        whole = end >= files.size(self.spool.path)
        return whole and self._behind_marker(fd, position.batch) is None

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

    def move_out(self, fd: int, position: Position) -> Position | None:
        """Set a batch aside that is in the inbox, with what is known of its readers."""
        tries, holder, crashes = position.tries, position.holder, position.crashes
        return self._set_aside(fd, position.at, tries=tries, holder=holder, crashes=crashes)

    def _set_aside(self, fd: int, start: int, **known: Any) -> Position | None:
        """Put the lines from `start` on into the taken file; nothing in that is needed any more."""
        if self._forget_nothing(fd, start):
            return None
        position = first_position(new_id(), rejected=files.size(self.rejected))
        position = replace(position, **known)
        end = self._mark(fd, position.batch)
        parts = chain([position.header()], lines.read_raw(fd, start, end))
        files.replace_by_parts(self.spool.path, parts, durable=self.durable)
        self._truncate(fd)
        self._truncated = position.batch
        return position

    def _truncate(self, fd: int) -> None:
        os.ftruncate(fd, 0)
        if self.durable:
            files.sync(fd)


def _begins_nameless(fd: int, start: int) -> bool:
    """Return whether a first look tells already that mail came without an id."""
    first, newline, _ = os.pread(fd, _GLANCE, start).partition(b"\n")
    if not newline or not first.startswith(b"{"):
        return False
    return b'"id"' not in first and not lines.is_marker(first)
