"""The sending half of a link: which lines of an outbox to send next, and which are confirmed."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from teamd.errors import StoreError, translate_os_errors
from teamd.files import files
from teamd.files.safe_open import safe_open
from teamd.hosts.cursor import Cursor, CursorFile
from teamd.hosts.outbox import Outbox
from teamd.hosts.outbox_file import (
    DamagedOutbox,
    End,
    Header,
    LineEnd,
    find_end,
    read_frame,
    read_header,
    read_lines,
    whole_size,
)
from teamd.postman.frames import LineFrame, Offer

WINDOW_LINES: Final = 512  # half of it shares two syncs; twice the size takes a MiB
_WINDOW_BYTES: Final = 1 << 20
_COMPACT_BYTES: Final = 1 << 20  # confirmed bytes, above which an idle outbox is rewritten
_ANEW_SECONDS: Final = 60.0  # between two new epochs
_NOWHERE: Final = LineEnd(0, "", 0)


@dataclass(slots=True)
class Outgoing:
    """Sends an outbox to another host.

    Attributes:
        outbox: the outbox, to which other processes append.
        file: the position up to which lines are confirmed.
        report: called with problems that could not be resolved.
        ready: whether the other side knows this outbox and accepts its lines.
    """

    outbox: Outbox
    file: CursorFile
    _: KW_ONLY
    report: Callable[[str], None]
    ready: bool = False
    header: Header | None = None
    _fd: int = -1
    # After a failed rewrite: the number of confirmed bytes before the next attempt.
    _no_room: int = 0
    _synced: int = 0  # bytes of the file that are certainly on disk
    _confirmed: LineEnd = _NOWHERE
    _flying: deque[LineEnd] = field(default_factory=deque)
    _anew: float = -math.inf  # when the last epoch was started

    def look(self) -> bool:
        """Check the file; return whether its epoch has changed.

        Raises:
            StoreError: the file cannot be read, or is damaged.
        """
        if self._fd >= 0 and self.is_current:
            self._tidy()
            return False
        before = self.header
        self._open()
        changed = self.header != before
        self.ready = self.ready and not changed
        return changed

    def offer(self) -> Offer | None:
        """Return the description of the outbox; `None` if there is no outbox."""
        if self.header is None:
            return None
        end = find_end(self._fd, whole_size(self._fd))
        confirmed = Cursor(self.header.epoch, self._confirmed.n, self._confirmed.chain)
        return Offer(self.header, confirmed, 0 if end is None else end.n)

    @property
    def waiting(self) -> bool:
        """Whether there are unconfirmed lines."""
        if self._flying or self.header is None or self._confirmed.end >= self._size():
            return bool(self._flying)
        # A killed sender may have left a torn line.
        return self._confirmed.end < whole_size(self._fd)

    def take(self) -> Iterator[LineFrame]:
        """Yield the frames to send now; their lines are on disk.

        Raises:
            StoreError: the file cannot be read, or the disk failed.
        """
        while self.ready and self.header is not None and (lines := self._next()):
            yield LineFrame(self.header.epoch, lines)

    def confirm(self, cursor: Cursor) -> bool:
        """Process a receipt; return whether it confirms new lines.

        Raises:
            StoreError: the confirmation could not be recorded, or the outbox not rewritten.
        """
        if self.header is None or cursor.epoch != self.header.epoch:
            return False
        place = self._find_flown(cursor.n)
        if place is None or place.chain != cursor.chain:
            return False
        self.ready = True
        if place == self._confirmed:
            return False
        while self._flying and self._flying[0].n <= place.n:
            self._flying.popleft()
        self._confirmed = place
        self._note()
        return True

    def settle(self, received: Cursor | None, now: float) -> bool:
        """Continue at the other side's position, as reported at `now`, in seconds.

        Returns:
            Whether another epoch was started.

        Raises:
            StoreError: the outbox cannot be read or written.
        """
        self._flying.clear()
        self.ready = False
        if self.header is None:
            return False
        if received is None or received.epoch != self.header.epoch:
            self._report_unknown(received)
            return False
        if received.n < self.header.first - 1:
            gap = self.header.first - 1 - received.n
            self.report(f"it is an old copy of its folder: {gap} messages that it had are gone")
            self._confirmed = self._start  # the other side confirms this once it has the new header
            self._note()
            return False
        place = self._find(received.n)
        if place is None or place.chain != received.chain:
            return self._begin_anew(now)
        if received.n < self._confirmed.n:
            lost = self._confirmed.n - received.n
            self.report(f"it is an old copy of its folder: {lost} messages are sent again")
        self.ready = True
        self._confirmed = place
        self._note()
        return False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _report_unknown(self, received: Cursor | None) -> None:
        """Report why the other side does not know this epoch, if it should."""
        done, former = self._confirmed.n, self.header and self.header.former
        if received is None and done:
            self.report(f"it has lost its folder: {done} messages that it had are gone with it")
        elif received is not None and received.epoch != former:
            self.report("it knows an earlier folder of this team: what waited there is gone")

    def _begin_anew(self, now: float) -> bool:
        """Start another epoch: this file is an old copy, and the other side knows later lines.

        A host may claim to know any line, so this rewrites the file only once in a while.
        """
        if now < self._anew + _ANEW_SECONDS:
            return False  # the question will be repeated
        self._anew, done = now, self._confirmed.n
        self.outbox.begin_anew(self._fd, done, lambda line: not line.is_request)
        self._open()
        again = self.header.copied if self.header is not None else 0
        self.report(
            f"this team's folder is an old copy: {again} messages to it are sent again, and those "
            "that it has already are known by their ids"
        )
        return True

    def _next(self) -> bytes:
        """Return the lines of the next frame, if the window has room."""
        start = self._flying[-1] if self._flying else self._confirmed
        room = WINDOW_LINES - len(self._flying)
        full = start.end - self._confirmed.end >= _WINDOW_BYTES  # may be exceeded by up to a frame
        if room <= 0 or (self._flying and full):
            return b""
        end = whole_size(self._fd) if self._synced < self._size() else self._synced
        if start.end >= end:
            return b""
        if end > self._synced and self.outbox.durable:
            with translate_os_errors(self.outbox.path):
                files.sync(self._fd)  # a killed writer may not have synced it
        self._synced = max(end, self._synced)
        for line in (lines := read_frame(self._fd, start, end, room)):
            start = LineEnd(line.n, line.chain, start.end + len(line.raw))
            self._flying.append(start)
        return b"".join(line.raw for line in lines)

    def _size(self) -> int:
        return os.fstat(self._fd).st_size

    def _note(self) -> None:
        """Record the confirmed position, and remove confirmed lines if there are many."""
        assert self.header is not None  # noqa: S101 -- for the type checker
        self.file.write(Cursor(self.header.epoch, self._confirmed.n, self._confirmed.chain))
        self._tidy()

    def _tidy(self) -> None:
        """Remove confirmed lines from the outbox if there are many.

        Waiting lines would be delayed by that. So it is postponed as long as possible while lines
        wait, and if there is no disk space for the copy, sending continues without it.
        """
        if self.header is None or self._confirmed.n < self.header.first:
            return  # the file has no confirmed lines
        done, size, share = self._confirmed.end, self._size(), self.outbox.max_bytes // 8
        least = min(_COMPACT_BYTES, share)
        if done == size:
            if done > least:
                self._compact()
        elif done > max(share, size // 2, self._no_room):
            try:
                self._compact()
            except StoreError:
                self._no_room = done + least

    def _compact(self) -> None:
        """Remove confirmed lines and adjust the offsets of lines in flight."""
        assert self.header is not None  # noqa: S101 -- for the type checker
        place, flying = self._confirmed, list(self._flying)
        self.outbox.compact(self._fd, End(self.header, *place))
        self._open()
        gone = place.end - self._confirmed.end
        self._flying = deque(LineEnd(one.n, one.chain, one.end - gone) for one in flying)

    @property
    def is_current(self) -> bool:
        """Whether the open file is still the outbox; true if no file is open."""
        if self._fd < 0:
            return True
        own = os.fstat(self._fd)
        with suppress(OSError):  # opening it raises the reason
            same = os.path.samestat(own, self.outbox.path.lstat())
            return same and own.st_size >= self._confirmed.end
        return False

    def _open(self) -> None:
        """Open the current file, and find the confirmed position in it."""
        self.close()
        self.header, self._synced, self._no_room = None, 0, 0
        self._flying.clear()
        with translate_os_errors(self.outbox.path):
            try:
                self._fd = safe_open(self.outbox.path, os.O_RDONLY)
            except FileNotFoundError:
                return
        if not whole_size(self._fd):
            self.close()
            return
        self.header = read_header(self._fd)
        if self.header is None:
            self.close()
            raise DamagedOutbox("its first line was not written by teamd")
        known = self.file.read()
        place = None
        if known is not None and known.epoch == self.header.epoch:
            place = self._find(known.n)
        self._confirmed = place or self._start

    @property
    def _start(self) -> LineEnd:
        assert self.header is not None  # noqa: S101 -- for the type checker
        return LineEnd(self.header.first - 1, self.header.chain, len(self.header.encode()))

    def _find_flown(self, n: int) -> LineEnd | None:
        """Return the end of an unconfirmed line, which is usually in flight."""
        if self._flying and 0 <= n - self._flying[0].n < len(self._flying):
            return self._flying[n - self._flying[0].n]
        # No host has received more, so a false receipt costs no search.
        near = n <= self._confirmed.n + WINDOW_LINES
        return self._find(n, self._confirmed) if near else None

    def _find(self, n: int, after: LineEnd | None = None) -> LineEnd | None:
        """Return the end of the line with a number, searching from `after`, or `None`."""
        place = after or self._start
        if place.n >= n:
            return place if place.n == n else None
        for line in read_lines(self._fd, place.end, whole_size(self._fd)):
            place = LineEnd(line.n, line.chain, place.end + len(line.raw))
            if place.n == n:
                return place
        return None
