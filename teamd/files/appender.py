"""Appending to one file of many writers again and again, with a descriptor that stays open."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from teamd.dataclass import dataclass
from teamd.files import files, locks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SETTLED_NANOSECONDS: Final = 100_000_000  # more than one tick of any file system's clock


@dataclass(slots=True)
class _Opened:
    """A descriptor, who opened it, and which file it is.

    Attributes:
        names: the state of its folder when the file was seen to stand there; empty for unknown.
    """

    fd: int
    process: int
    file: tuple[int, ...]
    names: tuple[int, ...] = ()


class Appender:
    """Does what `files.append` does, and opens the file only when another one stands there.

    A descriptor says nothing about the name, and an inherited one excludes nobody. So it is used
    by one thread at a time, in the process that opened it, and only while the file under the name
    is the very one that was opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name, self._folder = str(path), str(path.parent)
        self._kept: list[_Opened] = []  # a thread takes it out, and another one opens its own

    def append(
        self,
        line: bytes,
        *,
        durable: bool = True,
        patience_seconds: float = locks.TIMEOUT_SECONDS,
        check: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Append as `files.append` does.

        Args:
            line: as there.
            durable: as there.
            patience_seconds: as there.
            check: is told the size of the file before; what it raises forbids it.

        Raises:
            Unsynced: the disk failed; the line may be kept or not.
            StoreError: disk full, read-only, locked; the file is as it was.
        """
        opened = self._lock_kept(patience_seconds) or self._lock_anew(patience_seconds)
        try:
            # Not fstat: a file whose times were asked for has its node written at the next append.
            size = os.lseek(opened.fd, 0, os.SEEK_END)
            check(size)
            files.append_locked(opened.fd, self._path, line, size, durable=durable)
        except BaseException:
            _drop(opened)
            raise
        self._kept.append(opened)
        while len(self._kept) > 1:
            os.close(self._kept.pop(0).fd)

    def close(self) -> None:
        """Give the descriptor back."""
        while self._kept:
            os.close(self._kept.pop().fd)

    def __del__(self) -> None:
        self.close()

    def _lock_kept(self, patience_seconds: float) -> _Opened | None:
        """Lock the file that is open already; `None` where it is not what is to be written to."""
        try:
            opened = self._kept.pop()
        except IndexError:
            return None
        stands = False
        try:
            if opened.process == os.getpid():
                locks.acquire(opened.fd, self._path, patience_seconds)
                stands = self._stands(opened)
        finally:
            if not stands:
                _drop(opened)
        return opened if stands else None

    def _lock_anew(self, patience_seconds: float) -> _Opened:
        fd = locks.hold(self._path, timeout_seconds=patience_seconds)
        return _Opened(fd, os.getpid(), _identify(os.fstat(fd)))

    def _stands(self, opened: _Opened) -> bool:
        """Return whether the name stands for the file that was opened.

        Where nothing changed in the folder since it did, it does.
        """
        with suppress(OSError):
            folder = os.lstat(self._folder)
            names = (folder.st_ino, folder.st_dev, folder.st_mtime_ns, folder.st_ctime_ns)
            if names == opened.names:
                return True
            through_link = stat.S_ISLNK(folder.st_mode)
            if not through_link and _identify(os.lstat(self._name)) == opened.file:
                settled = time.time_ns() - folder.st_mtime_ns > _SETTLED_NANOSECONDS
                opened.names = names if settled else ()
                return True
        return False


def _identify(found: os.stat_result) -> tuple[int, ...]:
    """Identify a file; one that has got another name or owner is another one."""
    return found.st_ino, found.st_dev, found.st_nlink, found.st_uid


def _drop(opened: _Opened) -> None:
    """Close a descriptor; a process that was forked meanwhile may have it as well, and no lock."""
    if opened.process == os.getpid():
        locks.release(opened.fd)
    os.close(opened.fd)
