"""Exclusive locks on files, by `portalocker`. No other module locks.

On Linux and macOS portalocker takes a `flock(2)` on the open descriptor of the guarded file itself,
so `flock(1)` and other programs exclude us and we exclude them. The kernel releases the lock when
its holder ends, even by a kill.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from teamd.errors import LockTimeout, StoreError, translate_os_errors
from teamd.files.safe_open import PRIVATE_DIRECTORY, private_umask, safe_open

TIMEOUT_SECONDS: Final = 10.0
# Holders keep a lock for microseconds. `portalocker.Lock` would wait 0.25 s between two attempts,
# and would release the lock before its file object is flushed, which loses mail.
_CHECK_INTERVAL_SECONDS: Final = 0.0005
_PROBES: Final = 2
_importing: Final = threading.Lock()


@contextmanager
def locked(path: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[int]:
    """Hold the lock on `path`, which is created if it is missing; yields its descriptor.

    If another program renames a file over `path` meanwhile, the new file is locked instead.

    Raises:
        LockTimeout: another process held the lock for `timeout_seconds`.
        StoreError: the file cannot be opened.
    """
    fd = hold(path, timeout_seconds=timeout_seconds)
    try:
        yield fd
    finally:
        with suppress(OSError):  # the work is finished, and synced if needed
            os.close(fd)  # releases the lock; nothing here is buffered


def hold(path: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> int:
    """Take the lock on `path` for as long as the returned descriptor is open.

    Raises:
        LockTimeout: another process held the lock for `timeout_seconds`.
        StoreError: the file cannot be opened.
    """
    with translate_os_errors(path):
        while True:
            fd = safe_open(path, os.O_RDWR | os.O_CREAT)
            try:
                acquire(fd, path, timeout_seconds)
                if stands_under(fd, path):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)


def try_lock(path: Path) -> int | None:
    """Take the lock on `path` for as long as the returned descriptor is open.

    Returns:
        The descriptor, or `None` if another process holds the lock.
    """
    with translate_os_errors(path):
        fd = safe_open(path, os.O_RDWR | os.O_CREAT)
    taken = False
    try:
        taken = _take(fd, path)
    finally:
        if not taken:
            os.close(fd)
    return fd if taken else None


def acquire(fd: int, path: Path, timeout_seconds: float) -> None:
    """Take the lock on an open file; `path` is its name.

    Raises:
        LockTimeout: another process held the lock for `timeout_seconds`.
        StoreError: the file system has no working locks.
    """
    deadline = time.monotonic() + timeout_seconds
    while not _take(fd, path):
        if time.monotonic() > deadline:
            raise LockTimeout(path, timeout_seconds)
        time.sleep(_CHECK_INTERVAL_SECONDS)


def release(fd: int) -> None:
    """Release the lock on an open file; if that fails, closing the descriptor releases it."""
    portalocker = _load_portalocker()
    with suppress(portalocker.LockException):
        portalocker.unlock(fd)


def is_held_by(pid: int, path: Path) -> bool:
    """Return whether a process holds a file's lock.

    If /proc/locks does not name the holder, any holder counts. A pid written in a file may be
    wrong, by accident or on purpose; the kernel's answer is not.
    """
    holders = _holders(path)
    return pid in holders if holders else is_locked(path)


def stands_under(fd: int, path: Path) -> bool:
    """Return whether `path` still names the open file."""
    with translate_os_errors(path):
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(path))
        except FileNotFoundError:
            return False


def check(folder: Path) -> None:
    """Check that locks work in this folder: only one of two descriptors of a file can get the lock.

    The probe file has a random name, so two checks do not collide. If a kill leaves one behind, it
    is swept like any other temporary file.

    Raises:
        StoreError: locks do not exclude each other, or no file can be created there.
    """
    probe = folder / f".teamd-{os.urandom(8).hex()}.tmp"
    taken: list[int] = []
    try:
        while len(taken) < _PROBES and (fd := try_lock(probe)) is not None:
            taken.append(fd)
    finally:
        for fd in taken:
            os.close(fd)
        with suppress(OSError):
            probe.unlink()
    if len(taken) != 1:
        raise StoreError(
            f"locks have no effect in {folder}: its file system has no working flock; "
            "put the team on a local disk, with --team-dir or TEAMD_DIR"
        )


class InstanceLock:
    """The lock that only one process of a teammate holds, until it ends or calls `close`.

    A team's files are found by path. If the team directory is moved and another one takes its
    place, a process that went on would write there, beside that team's own teammate of this name.

    Args:
        path: the file to lock; its folder is created, the folder above is not.

    Raises:
        LockTimeout: another process holds the lock.
        StoreError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with translate_os_errors(path.parent), private_umask():
            path.parent.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
        self._lock = hold(path)

    def close(self) -> None:
        """Release the lock, so that another process can be this teammate."""
        os.close(self._lock)

    def check(self) -> None:
        """Check that the team directory is still the one that this process was started in.

        Call it before each write; it costs two `stat` calls.

        Raises:
            StoreError: the directory was moved or replaced.
        """
        if not stands_under(self._lock, self._path):
            raise StoreError(
                f"{self._path} is not the file that this process has locked: the team directory "
                "was moved "
                "or replaced; `teamd start` continues where it is now"
            )


def _holders(path: Path) -> set[int]:
    """Return the pids that hold the lock on a file by /proc/locks, see proc(5); empty if unknown.

    A line names a file by its inode number. Its device number differs from that of stat(2) on some
    file systems, so it is not compared. On a few file systems the inode number differs, too; such
    a file is not found.
    """
    with suppress(OSError):
        node = b":%d" % path.stat().st_ino
        lines = map(bytes.split, Path("/proc/locks").read_bytes().splitlines())
        held = [words for words in lines if words[1] == b"FLOCK"]  # "->" marks a waiter
        return {int(words[4]) for words in held if words[5].endswith(node)}
    return set()


def is_locked(path: Path) -> bool:
    """Return whether any process holds the lock on a file, by trying to take it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:  # another user's file
        return True
    try:
        return not _take(fd, path)
    finally:
        os.close(fd)


def _take(fd: int, path: Path) -> bool:
    """Take the lock if it is free; returns whether it was."""
    portalocker = _load_portalocker()
    try:
        portalocker.lock(fd, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        return False
    except portalocker.LockException as error:
        raise StoreError(
            f"the file system of {path} has no working locks; put the team on a local disk"
        ) from error
    return True


@cache
def _load_portalocker() -> ModuleType:
    """Import portalocker, which takes 50 ms that a command without a lock does not pay.

    Two steps of that import are for classes that are not used here, and are left out: it asks for
    the folder for temporary files, which fails on a full disk, and it imports redis if that is
    installed, which takes 100 ms more. Threads import it one after the other.
    """
    import tempfile  # noqa: PLC0415 -- only for this import

    with _importing:
        if (loaded := sys.modules.get("portalocker")) is not None:
            return loaded
        folder, redis = tempfile.tempdir, sys.modules.get("redis")
        try:
            tempfile.tempdir, sys.modules["redis"] = folder or "/", None  # type: ignore[assignment]
            import portalocker  # noqa: PLC0415 -- see above
        finally:
            tempfile.tempdir = folder
            if redis is None:
                sys.modules.pop("redis", None)
            else:
                sys.modules["redis"] = redis
        return portalocker
