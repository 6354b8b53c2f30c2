"""Files that one process opens again and again, with descriptors that stay open.

A descriptor says nothing about the name, and an inherited one excludes nobody. So it is used by one
thread at a time, in the process that opened it, and only while the file under the name is the very
one that was opened. To see that takes a tenth of the time of opening it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from teamd.errors import translate_os_errors
from teamd.files import files, locks
from teamd.files.file_stamp import KeptVersion, Version, has_settled_names, is_link
from teamd.files.safe_open import safe_open


@dataclass(slots=True)
class _Opened:
    """A descriptor, who opened it, and which file it is.

    Attributes:
        folder: that of its folder in which the file was seen to stand; `None` for unknown.
    """

    fd: int
    process: int
    file: tuple[int, ...]
    folder: Version | None = None


class KeptFile:
    """A file that is locked by its name, and opened only when another one stands there.

    Args:
        path: the file's.
        folder: what its folder is, where others in it are kept as well.
    """

    def __init__(self, path: Path, folder: KeptVersion | None = None) -> None:
        self.path = path
        self._name = str(path)
        self._folder = folder or KeptVersion(path.parent)
        self._kept: list[_Opened] = []  # a thread takes it out, and another one opens its own

    @contextmanager
    def locked(self, *, timeout_seconds: float = locks.TIMEOUT_SECONDS) -> Iterator[int]:
        """Hold the lock on what stands under the name, as `locks.locked` does."""
        opened = self._lock(timeout_seconds)
        try:
            yield opened.fd
        except BaseException:
            _drop(opened)
            raise
        locks.release(opened.fd)
        self._keep(opened)

    def append(
        self,
        line: bytes,
        *,
        durable: bool = True,
        patience_seconds: float = locks.TIMEOUT_SECONDS,
        check: Callable[[int, int], None] = lambda _, __: None,
    ) -> None:
        """Append as `files.append` does.

        Args:
            line: as there.
            durable: as there.
            patience_seconds: as there.
            check: is told the size of the file before, and of the line; what it raises forbids it.

        Raises:
            Unsynced: the disk failed; the line may be kept or not.
            StoreError: disk full, read-only, locked; the file is as it was.
        """
        opened = self._lock(patience_seconds)
        try:
            # Not fstat: a file whose times were asked for has its node written at the next append.
            size = os.lseek(opened.fd, 0, os.SEEK_END)
            check(size, len(line))
            files.append_locked(opened.fd, self.path, line, size, durable=durable)
        except OSError:
            _drop(opened)
            with translate_os_errors(self.path):
                raise
        except BaseException:
            _drop(opened)
            raise
        self._keep(opened)

    def _keep(self, opened: _Opened) -> None:
        self._kept.append(opened)
        while len(self._kept) > 1:
            _close(self._kept.pop(0).fd)

    @property
    def descriptor(self) -> int | None:
        """The descriptor that this process keeps, of what stood there last; `None` without one.

        For whoever only wants what it has written itself to be on the disk.
        """
        return next((one.fd for one in self._kept if one.process == os.getpid()), None)

    def close(self) -> None:
        """Give the descriptor back."""
        while self._kept:
            _close(self._kept.pop().fd)

    def __del__(self) -> None:
        self.close()

    def _lock(self, timeout_seconds: float) -> _Opened:
        """Lock what stands under the name: the file that is open already, or another one."""
        try:
            opened = self._kept.pop()
        except IndexError:
            return self._lock_anew(timeout_seconds)
        stands = False
        try:
            if opened.process == os.getpid():
                locks.acquire(opened.fd, self.path, timeout_seconds)
                stands = _stands(opened, self._name, self._folder)
        finally:
            if not stands:
                _drop(opened)
        return opened if stands else self._lock_anew(timeout_seconds)

    def _lock_anew(self, timeout_seconds: float) -> _Opened:
        fd = locks.hold(self.path, timeout_seconds=timeout_seconds)
        with translate_os_errors(self.path):
            return _opened(fd)


class KeptDescriptor:
    """A descriptor of a file that the lock of another one guards.

    Args:
        path: the file's.
        folder: what its folder is, where others in it are kept as well.
    """

    def __init__(self, path: Path, folder: KeptVersion | None = None) -> None:
        self._path, self._name = path, str(path)
        self._folder = folder or KeptVersion(path.parent)
        self._kept: _Opened | None = None
        self._writes = False

    def open(self) -> int | None:
        """Return a descriptor of what stands under the name; `None` where there is no file."""
        with translate_os_errors(self._path):
            try:
                return self._open(os.O_RDONLY)
            except FileNotFoundError:
                return None

    def open_to_write(self) -> int:
        """Return a descriptor of what stands under the name, which is made at need."""
        with translate_os_errors(self._path):
            return self._open(os.O_RDWR | os.O_CREAT)

    def _open(self, flags: int) -> int:
        writes = flags != os.O_RDONLY
        if (kept := self._kept) is not None:
            usable = kept.process == os.getpid() and (self._writes or not writes)
            if usable and _stands(kept, self._name, self._folder):
                return kept.fd
            self.close()
        self._kept, self._writes = _opened(safe_open(self._path, flags)), writes
        return self._kept.fd

    def close(self) -> None:
        """Give the descriptor back."""
        if self._kept is not None:
            _close(self._kept.fd)
            self._kept = None

    def __del__(self) -> None:
        self.close()


def _opened(fd: int) -> _Opened:
    """Take note of a file that was opened just now; it is closed where that fails."""
    try:
        return _Opened(fd, os.getpid(), _identify(os.fstat(fd)))
    except OSError:
        _close(fd)
        raise


def _stands(opened: _Opened, name: str, folder: KeptVersion) -> bool:
    """Return whether a name stands for the file that was opened.

    Where nothing changed in the folder since it did, it does.
    """
    version = folder.read()
    if version is None:
        return False
    if version is opened.folder:
        return True
    settled = version if has_settled_names(version) else None  # before the look
    try:
        if is_link(version) or _identify(os.lstat(name)) != opened.file:
            return False
    except OSError:
        return False
    opened.folder = settled
    return True


def _identify(found: os.stat_result) -> tuple[int, ...]:
    """Identify a file; one that has got another name or owner is another one."""
    return found.st_ino, found.st_dev, found.st_nlink, found.st_uid


def _drop(opened: _Opened) -> None:
    """Close a descriptor; a process that was forked meanwhile may have it as well, and no lock."""
    if opened.process == os.getpid():
        locks.release(opened.fd)
    _close(opened.fd)


def _close(fd: int) -> None:
    """Close a descriptor; what has to be on the disk is so already, and nothing else is promised.

    Whoever were told of a failure now would take what is done for undone.
    """
    with suppress(OSError):
        os.close(fd)
