"""The sending half of a link: which lines of an outbox go out next, and which are done with."""

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

WINDOW_LINES: Final = 512  # half of it shares two syncs; twice that takes a MiB
_WINDOW_BYTES: Final = 1 << 20
_COMPACT_BYTES: Final = 1 << 20  # that are confirmed, before the file is written anew at rest
_ANEW_SECONDS: Final = 60.0  # between two new epochs
_NOWHERE: Final = LineEnd(0, "", 0)


@dataclass(slots=True)
class Outgoing:
    """One outbox on its way to another host.

    Attributes:
        outbox: that others append to meanwhile.
        file: says how much of it is confirmed.
        report: hears what could not be made good.
        ready: whether the other side knows this outbox, and takes lines of it.
    """

    outbox: Outbox
    file: CursorFile
    _: KW_ONLY
    report: Callable[[str], None]
    ready: bool = False
    header: Header | None = None
    _fd: int = -1
    _no_room: int = 0  # for a copy, until more than so many bytes are confirmed
    _synced: int = 0  # bytes of the file that are on disk for sure
    _confirmed: LineEnd = _NOWHERE
    _flying: deque[LineEnd] = field(default_factory=deque)
    _anew: float = -math.inf  # when an epoch was begun last

    def look(self) -> bool:
        """Look at the file; return whether another epoch stands there than before.

        Raises:
            StoreError: it cannot be read, or is damaged.
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
        """Return what the other side is told of it; `None` where there is no outbox."""
        if self.header is None:
            return None
        end = find_end(self._fd, whole_size(self._fd))
        confirmed = Cursor(self.header.epoch, self._confirmed.n, self._confirmed.chain)
        return Offer(self.header, confirmed, 0 if end is None else end.n)

    @property
    def waiting(self) -> bool:
        """Whether there are lines that are not confirmed."""
        if self._flying or self.header is None or self._confirmed.end >= self._size():
            return bool(self._flying)
        return self._confirmed.end < whole_size(self._fd)  # a killed sender may have torn a line

    def take(self) -> Iterator[LineFrame]:
        """Yield the frames that may go out now: what they hold is on disk.

        Raises:
            StoreError: the file cannot be read, or the disk failed.
        """
        while self.ready and self.header is not None and (lines := self._next()):
            yield LineFrame(self.header.epoch, lines)

    def confirm(self, cursor: Cursor) -> bool:
        """Take note of a receipt; return whether it confirms anything new.

        Raises:
            StoreError: what is confirmed could not be noted, or taken away.
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
        """Go on where the other side stands, as it has just said at `now`, in seconds.

        Returns:
            Whether another epoch was begun.

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
            self._confirmed = self._start  # its receipt will say so once it has heard of that
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
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _report_unknown(self, received: Cursor | None) -> None:
        """Say why the other side knows nothing of this epoch, if it should."""
        done, former = self._confirmed.n, self.header and self.header.former
        if received is None and done:
            self.report(f"it has lost its folder: {done} messages that it had are gone with it")
        elif received is not None and received.epoch != former:
            self.report("it knows an earlier folder of this team: what waited there is gone")

    def _begin_anew(self, now: float) -> bool:
        """Begin another epoch: this file is an old copy, and the far side knows later lines.

        A host may claim to know any line: not the whole file is written each time that it does.
        """
        if now < self._anew + _ANEW_SECONDS:
            return False  # what waits is asked about again
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
        """Return the lines of the next frame, as far as the window is open."""
        start = self._flying[-1] if self._flying else self._confirmed
        room = WINDOW_LINES - len(self._flying)
        full = start.end - self._confirmed.end >= _WINDOW_BYTES  # by up to a frame more
        if room <= 0 or (self._flying and full):
            return b""
        end = whole_size(self._fd) if self._synced < self._size() else self._synced
        if start.end >= end:
            return b""
        if end > self._synced and self.outbox.durable:
            with translate_os_errors(self.outbox.path):
                files.sync(self._fd)  # whoever wrote it may have been killed before it did
        self._synced = max(end, self._synced)
        for line in (lines := read_frame(self._fd, start, end, room)):
            start = LineEnd(line.n, line.chain, start.end + len(line.raw))
            self._flying.append(start)
        return b"".join(line.raw for line in lines)

    def _size(self) -> int:
        return os.fstat(self._fd).st_size

    def _note(self) -> None:
        """Write down what is confirmed, and take it out of the outbox once that is much."""
        assert self.header is not None  # noqa: S101 -- for the type checker
        self.file.write(Cursor(self.header.epoch, self._confirmed.n, self._confirmed.chain))
        self._tidy()

    def _tidy(self) -> None:
        """Take out of the outbox what is confirmed, if that is much.

        Where lines wait, they would wait for that as well: it is put off until it must be, and
        they go out all the same where there is no room for the copy.
        """
        if self.header is None or self._confirmed.n < self.header.first:
            return  # nothing of it is here
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
        """Take away what is confirmed: all places behind it move by as much."""
        assert self.header is not None  # noqa: S101 -- for the type checker
        place, flying = self._confirmed, list(self._flying)
        self.outbox.compact(self._fd, End(self.header, *place))
        self._open()
        gone = place.end - self._confirmed.end
        self._flying = deque(LineEnd(one.n, one.chain, one.end - gone) for one in flying)

    @property
    def is_current(self) -> bool:
        """Whether what was opened still stands there; also where nothing was."""
        if self._fd < 0:
            return True
        own = os.fstat(self._fd)
        with suppress(OSError):  # to open it says why
            same = os.path.samestat(own, self.outbox.path.lstat())
            return same and own.st_size >= self._confirmed.end
        return False

    def _open(self) -> None:
        """Open what stands there now, and find what is confirmed of it."""
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
            raise DamagedOutbox("its first line is none of ours")
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
        """Return where a line ends that was not confirmed yet: mostly one that is under way."""
        if self._flying and 0 <= n - self._flying[0].n < len(self._flying):
            return self._flying[n - self._flying[0].n]
        near = n <= self._confirmed.n + WINDOW_LINES  # nobody has got more: a lie costs no search
        return self._find(n, self._confirmed) if near else None

    def _find(self, n: int, after: LineEnd | None = None) -> LineEnd | None:
        """Return where the line with a number ends, that one or one behind it; or `None`."""
        place = after or self._start
        if place.n >= n:
            return place if place.n == n else None
        for line in read_lines(self._fd, place.end, whole_size(self._fd)):
            place = LineEnd(line.n, line.chain, place.end + len(line.raw))
            if place.n == n:
                return place
        return None
