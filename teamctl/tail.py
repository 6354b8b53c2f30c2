"""Reading a file that grows: logs, transcripts."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

from teamd.files.os_errors import translate_os_errors
from teamd.files.watch import watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class GrowingFile:
    """A file that is appended to, and now and then replaced by a new one.

    It need not be there yet. Every line is given out once, and whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._rest = b""

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that came since the last call."""
        with translate_os_errors(self._path):
            yield from self._read()
            if self._replaced():
                self.close()
                with suppress(FileNotFoundError):
                    self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                yield from self._read()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _read(self) -> Iterator[bytes]:
        while self._fd >= 0 and (part := os.read(self._fd, 1 << 16)):
            *whole, self._rest = (self._rest + part).split(b"\n")
            yield from whole

    def _replaced(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return self._fd < 0 or os.fstat(self._fd).st_ino != there.st_ino


def lines(path: Path, *, last: int | None, follow: bool) -> Iterator[bytes]:
    """Yield whole lines of a file, then those that are added, through rotations too.

    Args:
        path: need not be there yet; its folder must be.
        last: how many of those that stand there now; all for `None`.
        follow: whether to go on until interrupted.
    """
    growing = GrowingFile(path)
    watching = watch(path.parent) if follow else None
    try:
        there = list(growing.lines())
        yield from there if last is None else there[max(0, len(there) - last) :]
        while watching is not None:
            select.select([watching.fileno()], [], [], watching.recheck_seconds)
            watching.changed()
            yield from growing.lines()
    finally:
        growing.close()
        if watching is not None:
            watching.close()
