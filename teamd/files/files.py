"""Crash-safe files: the only module that appends or renames, besides `rewrite`.

**Power cuts.** A file's data is durable once the file is synced, and its name once its directory is
synced. The durable functions here return only after both, so data that this process wrote is
durable. Data that it *finds* may not be: the writer may have been killed between the write and the
sync. The kernel shows such data to every process although a power cut can still undo it. So a
process that acts on data it found (acknowledges it, removes its source, reports that nothing is
left to do) calls `make_durable` first. For a file that only this process writes, one call after the
first read is enough.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from teamd.errors import Unsynced, translate_os_errors
from teamd.files import locks
from teamd.files.directories import sync_directory
from teamd.files.safe_open import PRIVATE_FILE, check_folder, safe_open

DAMAGED: Final = ".damaged-"  # in the name of a damaged file that was renamed
_ANY_FILE: Final = 0o666
_CHUNK: Final = 1 << 20


def append(
    path: Path,
    line: bytes,
    *,
    durable: bool = True,
    patience_seconds: float = locks.TIMEOUT_SECONDS,
    check: Callable[[int, int], None] = lambda _, __: None,
) -> None:
    """Append one line (or several, each with its newline) to a file with many writers.

    The lock is released before the sync, so a line that the disk fails to confirm is not removed:
    another process may have read it by then. The sync is not retried either: after a failed sync
    the kernel marks the pages clean, and the next sync would succeed without writing them
    (PostgreSQL lost data this way). To recover, append the line again with the same message id;
    both lines are then one message.

    Args:
        path: created if missing.
        line: ends in a newline.
        durable: whether to wait until the line is on disk.
        patience_seconds: how long to wait for the lock.
        check: called with the file's size and the line's length; it raises to prevent the append.

    Raises:
        Unsynced: the disk failed; the line may or may not be kept.
        StoreError: disk full, read-only or locked; the file is unchanged.
    """
    with locks.locked(path, timeout_seconds=patience_seconds) as fd:
        with translate_os_errors(path):
            size = os.fstat(fd).st_size
        check(size, len(line))
        append_locked(fd, path, line, size, durable=durable)


def append_locked(fd: int, path: Path, line: bytes, size: int, *, durable: bool) -> None:
    """Append to a locked file of known size; a durable append releases its lock, see `append`."""
    with translate_os_errors(path):
        if durable and not size:
            # The file's creator may have been killed before the name was durable. A file with a
            # line in it has been through this step.
            sync_directory(path.parent)
        write_at_end(fd, line, size)
    if durable:
        locks.release(fd)  # other writers need not wait for our sync
        try:
            sync(fd)
        except OSError as error:
            raise Unsynced(path, error.strerror or str(error)) from error


def append_alone(
    path: Path,
    lines: bytes,
    *,
    durable: bool = True,
    taken_back_to: int | None = None,
) -> int:
    """Append lines to a file that has one writer, all or none.

    The lock is held until the disk has confirmed the lines, and unconfirmed lines are removed. So
    later readers find only lines that survive a power cut.

    Args:
        path: created if missing.
        lines: each ends in a newline.
        durable: whether to wait until the whole file is on disk.
        taken_back_to: the size at the last sync, if smaller than now.

    Returns:
        The size of the file before the append.

    Raises:
        StoreError: the file has its former size, or that of the last sync.
    """
    with locks.locked(path) as fd, translate_os_errors(path):
        start = os.fstat(fd).st_size
        safe = start if taken_back_to is None else taken_back_to
        if durable and not safe:
            sync_directory(path.parent)  # nothing of the file was on disk, and maybe not its name
        write_at_end(fd, lines, start)
        try:
            if durable:
                sync(fd)
        except OSError:
            os.ftruncate(fd, safe)
            raise
        return start


def write_at_end(fd: int, line: bytes, size: int | None = None) -> None:
    """Append to a locked file, starting on a new line; a failure leaves no partial line."""
    if size is None:
        size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        line = b"\n" + line  # a killed writer left a partial line: end it first
    try:
        if (written := os.pwrite(fd, line, size)) < len(line):
            write_all(fd, line[written:], size + written)
    except OSError:
        os.ftruncate(fd, size)
        raise


def make_durable(path: Path) -> None:
    """Sync the data and name of a file that this process found; see the module docstring.

    A missing file is ignored.

    Raises:
        StoreError: the disk failed, or the file cannot be read.
    """
    with opened(path) as fd:
        if fd is not None:
            sync(fd)
            sync_directory(path.parent)


def put_aside(path: Path) -> Path:
    """Rename a damaged file, so that only a person looks at it.

    Returns:
        The new path.
    """
    kept = name_aside(path)
    with translate_os_errors(path):
        check_folder(path.parent)
        path.rename(kept)
    return kept


def name_aside(path: Path) -> Path:
    """Return an unused name for a damaged file."""
    return path.with_name(f"{path.name}{DAMAGED}{time.time_ns()}")


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    """Open a file for reading during the block; yields `None` if it does not exist."""
    with translate_os_errors(path):
        try:
            fd = safe_open(path, os.O_RDONLY)
        except FileNotFoundError:
            yield None
            return
        try:
            yield fd
        finally:
            os.close(fd)


def read(path: Path) -> bytes | None:
    """Return the content of a file, or `None` if it does not exist."""
    with opened(path) as fd:
        return None if fd is None else read_descriptor(fd)


def read_descriptor(fd: int, offset: int = 0) -> bytes:
    """Return the bytes of an open file from an offset to its end."""
    size = os.fstat(fd).st_size
    asked = min(max(size - offset, 0) + 1, _CHUNK)  # one more byte than expected shows the end
    parts = []
    while part := os.pread(fd, asked, offset):
        parts.append(part)
        offset += len(part)
        if len(part) < asked and offset >= size > 0:  # otherwise a disk error or unknown size
            break
        asked = _CHUNK
    return b"".join(parts)


def replace(
    path: Path,
    data: bytes,
    *,
    mode: int | None = PRIVATE_FILE,
    durable: bool = True,
    confirm: Callable[[], None] = lambda: None,
) -> None:
    """Replace the content of `path` atomically, see `replace_by_parts`."""
    replace_by_parts(path, (data,), mode=mode, durable=durable, confirm=confirm)


def replace_by_parts(
    path: Path,
    parts: Iterable[bytes],
    *,
    mode: int | None = PRIVATE_FILE,
    durable: bool = True,
    confirm: Callable[[], None] = lambda: None,
) -> None:
    """Replace the content of `path` atomically: write a temporary file, sync, rename, sync.

    A reader sees the old or the new content, never a part of it. A failure leaves the old content.

    Args:
        path: the file to replace.
        parts: the new content, in order.
        mode: of the new file; `None` for the default of the umask and folder.
        durable: whether to wait until the new content is on disk.
        confirm: called right before the rename; it raises to keep the old content.

    Raises:
        StoreError: disk full, read-only, …
    """
    aside = name_beside(path)
    with translate_os_errors(path):
        try:
            _write_aside(aside, parts, mode, durable=durable)
            confirm()
            aside.rename(path)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise
        if durable:
            sync_directory(path.parent)


def name_beside(path: Path) -> Path:
    """Return a name in the same folder for a temporary file."""
    return path.with_name(f".teamd-{os.urandom(8).hex()}.tmp")


def exists(path: Path) -> bool:
    """Return whether the path exists, including as a dangling link."""
    with translate_os_errors(path), suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
        return True
    return False


def size(path: Path) -> int:
    """Return a file's size in bytes; 0 if it does not exist."""
    with translate_os_errors(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:  # not written yet, or just removed
            return 0


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    with translate_os_errors(path):
        check_folder(path.parent)
        path.unlink(missing_ok=True)


def sync(fd: int) -> None:
    """Sync a file's data to the disk itself."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync(2) there stops at the drive's cache
    else:
        os.fdatasync(fd)


def _write_aside(aside: Path, parts: Iterable[bytes], mode: int | None, *, durable: bool) -> None:
    # O_EXCL: another user who may write to the folder cannot make us follow a link.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(aside, flags, _ANY_FILE if mode is None else mode)
    try:
        if mode is not None:
            os.fchmod(fd, mode)
        end = 0
        for part in parts:
            write_all(fd, part, end)
            end += len(part)
        if durable:
            sync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all bytes; after a short write the next one raises the reason."""
    written = os.pwrite(fd, data, offset)
    while written < len(data):
        data = data[written:]
        offset += written
        written = os.pwrite(fd, data, offset)
