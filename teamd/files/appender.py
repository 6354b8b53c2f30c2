"""Appending to one file of many writers again and again, with a descriptor that stays open."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from teamd.files import files, locks

if TYPE_CHECKING:
    from pathlib import Path


class _Opened(NamedTuple):
    """A descriptor, who opened it, and which file it is."""

    fd: int
    process: int
    user: int
    device: int
    node: int


class Appender:
    """Does what `files.append` does, and opens the file only when another one stands there.

    A descriptor says nothing about the name, and an inherited one excludes nobody. So it is used
    by one thread at a time, in the process that opened it, and only while the file under the name
    is the very one that was opened, with nothing about it that `safe_open` would refuse.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self._kept: list[_Opened] = []  # a thread takes it out, and another one opens its own

    def append(
        self,
        line: bytes,
        *,
        durable: bool = True,
        patience_seconds: float = locks.TIMEOUT_SECONDS,
    ) -> None:
        """Append as `files.append` does.

        Raises:
            Unsynced: the disk failed; the line may be kept or not.
            StoreError: disk full, read-only, locked; the file is as it was.
        """
        opened, size = self._lock_kept(patience_seconds) or self._lock_anew(patience_seconds)
        try:
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

    def _lock_kept(self, patience_seconds: float) -> tuple[_Opened, int] | None:
        """Lock the file that is open already; `None` where it is not what is to be written to."""
        try:
            opened = self._kept.pop()
        except IndexError:
            return None
        size = None
        try:
            if opened.process == os.getpid():
                locks.acquire(opened.fd, self._path, patience_seconds)
                size = self._size_of(opened)
        finally:
            if size is None:
                _drop(opened)
        return None if size is None else (opened, size)

    def _lock_anew(self, patience_seconds: float) -> tuple[_Opened, int]:
        fd = locks.hold(self._path, timeout_seconds=patience_seconds)
        found = os.fstat(fd)
        opened = _Opened(fd, os.getpid(), os.geteuid(), found.st_dev, found.st_ino)
        return opened, found.st_size

    def _size_of(self, opened: _Opened) -> int | None:
        """Return the file's size; `None` where the name stands for something else by now."""
        with suppress(OSError):
            found = os.lstat(self._name)
            known = (opened.node, opened.device, opened.user, 1)
            if (found.st_ino, found.st_dev, found.st_uid, found.st_nlink) == known:
                return found.st_size
        return None


def _drop(opened: _Opened) -> None:
    """Close a descriptor; a process that was forked meanwhile may have it as well, and no lock."""
    if opened.process == os.getpid():
        locks.release(opened.fd)
    os.close(opened.fd)
