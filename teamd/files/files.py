"""Crash-safe files: the only module that appends or renames, besides `rewrite`.

**What is safe from a power cut.** A file's data is safe once the file was synced, its name once its
directory was. The functions here that are durable return only then, so what this process has
written is safe. What it *finds* is not: whoever wrote it may have been killed between the write and
the sync, and the kernel shows it to everybody while a power cut can still take it away. So whoever
builds on what it has found (acknowledges it, acts on it, removes what it was made from, answers
that nothing is to be done) calls `make_durable` first. For a file that only this process writes,
once after it was first read is enough.
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

DAMAGED: Final = ".damaged-"  # in the name of a file that was put aside
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
    """Append one line (or several, each with its newline) to a file of many writers.

    Others go on while this one waits for the disk, so a line that the disk fails to confirm is
    not taken back: by then it may have been read. Nor is the sync tried again: after a failed one
    the kernel takes the pages for clean, and the next would succeed without having written them
    (PostgreSQL lost data by believing it). To append the line once more, under the id that makes
    both of them one message, writes it anew.

    Args:
        path: created if need be.
        line: ends in a newline.
        durable: on disk when this returns; otherwise in the kernel's cache.
        patience_seconds: how long to wait for the lock.
        check: is given the size of the file before, and of the line; what it raises forbids it.

    Raises:
        Unsynced: the disk failed; the line may be kept or not.
        StoreError: disk full, read-only, locked; the file is as it was.
    """
    with locks.locked(path, timeout_seconds=patience_seconds) as fd:
        with translate_os_errors(path):
            size = os.fstat(fd).st_size
        check(size, len(line))
        append_locked(fd, path, line, size, durable=durable)


def append_locked(fd: int, path: Path, line: bytes, size: int, *, durable: bool) -> None:
    """Append to a locked file of a known size, and release its lock; see `append`."""
    with translate_os_errors(path):
        if durable and not size:
            # Its creator may have been killed before the name was durable; a file with a line in
            # it has been through here.
            sync_directory(path.parent)
        write_at_end(fd, line, size)
    locks.release(fd)  # the next writer goes on while this one waits for the disk
    if durable:
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

    The lock is kept until the disk has confirmed, and what it has not is taken back: whoever reads
    the file later finds nothing there that a power cut could still take away.

    Args:
        path: created if need be.
        lines: each ends in a newline.
        durable: on disk when this returns, with all that stands before it.
        taken_back_to: where the file ended when it was last on disk, if that was earlier.

    Returns:
        Where the file ended before.

    Raises:
        StoreError: the file is as it was, or as it was when it was last on disk.
    """
    with locks.locked(path) as fd, translate_os_errors(path):
        start = os.fstat(fd).st_size
        safe = start if taken_back_to is None else taken_back_to
        if durable and not safe:
            sync_directory(path.parent)  # nothing of it was on disk, nor maybe its name
        write_at_end(fd, lines, start)
        try:
            if durable:
                sync(fd)
        except OSError:
            os.ftruncate(fd, safe)
            raise
        return start


def write_at_end(fd: int, line: bytes, size: int | None = None) -> None:
    """Append to a locked file, on a line of its own, and leave no half line when it fails."""
    if size is None:
        size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        line = b"\n" + line  # a writer was killed in mid-line: its torn tail stays a line alone
    try:
        if (written := os.pwrite(fd, line, size)) < len(line):
            write_all(fd, line[written:], size + written)
    except OSError:
        os.ftruncate(fd, size)
        raise


def make_durable(path: Path) -> None:
    """Make what was found under a name safe from a power cut: its data and its name.

    Nothing is done where there is no such file. For whom, see the module.

    Raises:
        StoreError: the disk failed, or the file cannot be read.
    """
    with opened(path) as fd:
        if fd is not None:
            sync(fd)
            sync_directory(path.parent)


def put_aside(path: Path) -> Path:
    """Give a damaged file another name, under which nothing looks for it but a person.

    Returns:
        Where it is now.
    """
    kept = name_aside(path)
    with translate_os_errors(path):
        check_folder(path.parent)
        path.rename(kept)
    return kept


def name_aside(path: Path) -> Path:
    """Return a name for a damaged file that nothing has."""
    return path.with_name(f"{path.name}{DAMAGED}{time.time_ns()}")


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    """Open a file to be read, for as long as the block lasts; `None` where there is none."""
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
    """Return the whole file, or `None` where there is none."""
    with opened(path) as fd:
        return None if fd is None else read_descriptor(fd)


def read_descriptor(fd: int, offset: int = 0) -> bytes:
    """Return all bytes of an open file, from its start or an offset on."""
    size = os.fstat(fd).st_size
    asked = min(max(size - offset, 0) + 1, _CHUNK)  # a byte more than there is: the end shows
    parts = []
    while part := os.pread(fd, asked, offset):
        parts.append(part)
        offset += len(part)
        if len(part) < asked and offset >= size > 0:  # else the disk has failed, or tells no size
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
    """Give `path` new content at once, see `replace_by_parts`."""
    replace_by_parts(path, (data,), mode=mode, durable=durable, confirm=confirm)


def replace_by_parts(
    path: Path,
    parts: Iterable[bytes],
    *,
    mode: int | None = PRIVATE_FILE,
    durable: bool = True,
    confirm: Callable[[], None] = lambda: None,
) -> None:
    """Give `path` new content at once: write aside, sync, rename, sync the directory.

    A reader sees the old or the new content, never a part; a failure leaves the old.

    Args:
        path: that is replaced.
        parts: of the new content, in their order.
        mode: of the new file; `None` for what umask and folder give to any program's files.
        durable: on disk when this returns.
        confirm: called right before the rename; what it raises leaves the old content.

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
    """Return a name in the same folder for a file that is still being written."""
    return path.with_name(f".teamd-{os.urandom(8).hex()}.tmp")


def exists(path: Path) -> bool:
    """Return whether there is anything under that name, be it a link that leads nowhere."""
    with translate_os_errors(path), suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
        return True
    return False


def size(path: Path) -> int:
    """Return a file's size in bytes, 0 where there is none."""
    with translate_os_errors(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:  # not written to yet, or removed a moment ago
            return 0


def remove(path: Path) -> None:
    """Remove a file if it is there."""
    with translate_os_errors(path):
        check_folder(path.parent)
        path.unlink(missing_ok=True)


def sync(fd: int) -> None:
    """Bring a file's data to the disk itself."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync(2) there stops at the drive's cache
    else:
        os.fdatasync(fd)


def _write_aside(aside: Path, parts: Iterable[bytes], mode: int | None, *, durable: bool) -> None:
    # O_EXCL: whoever may write to the folder cannot have put a link there for us to follow.
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
    """Write everything; a short write is followed by the error that tells why it was short."""
    written = os.pwrite(fd, data, offset)
    while written < len(data):
        data = data[written:]
        offset += written
        written = os.pwrite(fd, data, offset)
