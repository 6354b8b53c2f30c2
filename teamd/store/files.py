"""Crash-safe files: the only module that locks, appends or renames."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from teamd.errors import LockTimeout, StoreError

# Importing portalocker asks for a folder for temporary files, which on a full disk there is none.
try:
    tempfile.gettempdir()
except FileNotFoundError:
    tempfile.tempdir = os.path.sep

import portalocker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700
LOCK_TIMEOUT_SECONDS: Final = 10.0
_CHUNK: Final = 1 << 20
_FIRST_PAUSE_SECONDS: Final = 0.0002
_LONGEST_PAUSE_SECONDS: Final = 0.005


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn an `OSError` about `path` into a `StoreError` whose sentence says what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(_sentence(error, path)) from error


@contextmanager
def locked(path: Path, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[int]:
    """Hold the exclusive `flock` on `path` itself, created if need be; yields its descriptor.

    A program that renames another file over `path` meanwhile is noticed before anything is
    written: what is locked is what stands under that name.

    Raises:
        LockTimeout: another process held it for `timeout_seconds`.
        StoreError: it cannot be opened.
    """
    fd = _open_locked(path, timeout_seconds)
    try:
        yield fd
    finally:
        os.close(fd)  # releases the lock; nothing here is buffered


def try_lock(path: Path) -> int | None:
    """Take the lock on `path` for as long as the returned descriptor is open.

    Returns:
        The descriptor, or `None` while somebody else has the lock.
    """
    with told(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        portalocker.lock(fd, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        os.close(fd)
        return None
    except portalocker.LockException as error:
        os.close(fd)
        raise StoreError(_no_locks(path)) from error
    return fd


def hold(path: Path, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> int:
    """Take the lock on `path` for life; the kernel gives it back when the process ends.

    Returns:
        The descriptor that holds it.

    Raises:
        LockTimeout: another process has it, and keeps it.
    """
    return _open_locked(path, timeout_seconds)


def append(path: Path, line: bytes, *, durable: bool = True) -> None:
    """Append one line (or several, each with its newline) under the lock, all of it or nothing.

    Args:
        path: created if need be, its directory entry synced.
        line: ends in a newline.
        durable: on disk when this returns; otherwise in the kernel's cache.

    Raises:
        StoreError: disk full, read-only, locked; the file is as it was.
    """
    fd = _open_locked(path, LOCK_TIMEOUT_SECONDS)
    try:
        with told(path):
            write_at_end(fd, line)
            with suppress(portalocker.LockException):  # the line stands; closing unlocks as well
                portalocker.unlock(fd)  # others go on while this one waits for the disk
            if durable:
                sync(fd)
    finally:
        os.close(fd)


def write_at_end(fd: int, line: bytes) -> None:
    """Append to a locked file, on a line of its own, and leave no half line when it fails."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        line = b"\n" + line  # a writer was killed in mid-line: its torn tail stays a line alone
    try:
        _write_all(fd, line, size)
    except OSError:
        os.ftruncate(fd, size)
        raise


def read(path: Path) -> bytes | None:
    """Return the whole file, or `None` where there is none."""
    with told(path):
        try:
            # A FIFO would let us wait for a writer for ever.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            _check_regular(fd)
            return read_descriptor(fd)
        finally:
            os.close(fd)


def read_descriptor(fd: int) -> bytes:
    """Return all bytes of an open file, from its start."""
    parts = []
    offset = 0
    while part := os.pread(fd, _CHUNK, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def replace(path: Path, data: bytes, *, mode: int = PRIVATE_FILE, durable: bool = True) -> None:
    """Give `path` new content at once, see `replace_by_parts`."""
    replace_by_parts(path, (data,), mode=mode, durable=durable)


def replace_by_parts(
    path: Path, parts: Iterable[bytes], *, mode: int = PRIVATE_FILE, durable: bool = True
) -> None:
    """Give `path` new content at once: write aside, sync, rename, sync the directory.

    A reader sees the old or the new content, never a part; a failure leaves the old.

    Raises:
        StoreError: disk full, read-only, …
    """
    aside = path.with_name(f".teamd-{os.urandom(8).hex()}.tmp")
    with told(path):
        try:
            _write_aside(aside, parts, mode, durable=durable)
            aside.rename(path)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise
        if durable:
            sync_directory(path.parent)


def exists(path: Path) -> bool:
    """Whether there is anything under that name."""
    with told(path):
        return path.exists()


def is_directory(path: Path) -> bool:
    """Whether it is a folder, or a link to one."""
    with told(path):
        return path.is_dir()


def size(path: Path) -> int:
    """Return a file's size in bytes, 0 where there is none."""
    with told(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:  # not written to yet, or removed a moment ago
            return 0


def remove(path: Path) -> None:
    """Remove a file if it is there."""
    with told(path):
        path.unlink(missing_ok=True)


def sync(fd: int) -> None:
    """Bring a file's data to the disk itself."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync(2) there stops at the drive's cache
    else:
        os.fdatasync(fd)


def sync_directory(directory: Path) -> None:
    """Bring a directory's entries to the disk: a file's name is not safe before."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_private_directory(directory: Path) -> None:
    """Make a directory that only its owner can look into, with its parents, unless it is there."""
    with told(directory):
        directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)


def check_owner(path: Path) -> None:
    """Refuse what belongs to another user, as git refuses another user's repository.

    Raises:
        StoreError: it does; the sentence names the remedy.
    """
    with told(path):
        owner = path.stat().st_uid
    if owner != os.geteuid():
        raise StoreError(
            f"{path} belongs to user {owner}, not to you (user {os.geteuid()}); "
            "run this as its owner, or use another folder"
        )


def _open_locked(path: Path, timeout_seconds: float) -> int:
    deadline = time.monotonic() + timeout_seconds
    with told(path):
        while True:
            fd = _open_or_create(path)
            try:
                _acquire(fd, path, deadline, timeout_seconds)
                if stands_under(fd, path):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)


def _open_or_create(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        fd = os.open(path, flags | os.O_CREAT, PRIVATE_FILE)
        sync_directory(path.parent)
    try:
        _check_regular(fd)
    except OSError:
        os.close(fd)
        raise
    return fd


def _check_regular(fd: int) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


def _acquire(fd: int, path: Path, deadline: float, timeout_seconds: float) -> None:
    flags = portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            portalocker.lock(fd, flags)
        except portalocker.AlreadyLocked:
            # A blocking flock cannot be bounded in time without a signal or a thread. Holders
            # keep it for microseconds, so a few short naps get the lock about as soon.
            if time.monotonic() > deadline:
                raise LockTimeout(path, timeout_seconds) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        except portalocker.LockException as error:
            raise StoreError(_no_locks(path)) from error
        else:
            return


def stands_under(fd: int, path: Path) -> bool:
    """Whether an open file is what stands under that name."""
    with told(path):
        mine = os.fstat(fd)
        try:
            there = path.stat()
        except FileNotFoundError:
            return False
    return (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev)


def _write_aside(aside: Path, parts: Iterable[bytes], mode: int, *, durable: bool) -> None:
    # O_EXCL: whoever may write to the folder cannot have put a link there for us to follow.
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)
        end = 0
        for part in parts:
            _write_all(fd, part, end)
            end += len(part)
        if durable:
            sync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes, offset: int) -> None:
    """Write everything; a short write is followed by the error that tells why it was short."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


def _no_locks(path: Path) -> str:
    return f"the file system of {path} has no working locks; put the team on a local disk"


def _sentence(error: OSError, path: Path) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return f"no space left for {path}; free some and try again"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"{path} may not be accessed ({error.strerror}); check its owner and mode"
        case errno.ENOENT | errno.ENOTDIR:
            return f"{path} has gone; is the team directory still there?"
        case errno.EMFILE | errno.ENFILE:
            return f"too many open files to open {path}; raise `ulimit -n`"
        case _:
            return f"{path}: {error.strerror or error}; `teamctl doctor` checks the machine"
