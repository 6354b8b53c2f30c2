"""Open a team's files safely: regular files of this user, without hard or symbolic links.

Otherwise a user who can write to a team directory, or who supplied it, could make a command read or
write any file of this user, or block forever on a FIFO. Files are checked through the open
descriptor. Folders are checked just before, since only this user can change them.
"""

from __future__ import annotations

import errno
import os
import stat
from _thread import RLock
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from teamd.errors import StrangeFile, translate_os_errors

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
_PRIVATE_UMASK: Final = 0o077
# Flags to open a folder itself, never a link to it.
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UMASK: Final = RLock()  # the lock class of `threading`, without importing that module
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a FIFO would block forever
_REMEDY: Final = "put the folder itself in its place"
_LINK: Final = "a symbolic link, which is not followed in a team directory"


def safe_open(path: Path, flags: int) -> int:
    """Open a file of a team; a new file is private, whatever the umask.

    Raises:
        StrangeFile: the file is a link, not regular or another user's, or its folder is a link.
        OSError: the file cannot be opened.
    """
    _check_folder(os.path.dirname(os.fspath(path)), _REMEDY)  # noqa: PTH120 -- much faster
    fd = _open(path, flags & ~os.O_TRUNC)
    try:
        _check(fd, path)
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_folder(folder: Path, remedy: str = _REMEDY) -> None:
    """Refuse a folder that is a symbolic link or is inside one.

    The path of a team directory contains no links, and its files are at most two folders deep.

    Raises:
        StrangeFile: the folder is a link, or is inside one.
        StoreError: the folder cannot be checked.
    """
    _check_folder(os.fspath(folder), remedy)


def _check_folder(name: str, remedy: str) -> None:
    for level in (name, os.path.dirname(name)):  # noqa: PTH120 -- faster, at each access
        if _is_link(level):
            raise StrangeFile(Path(level), _LINK, remedy) from OSError(errno.ELOOP, _LINK)


def _is_link(name: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        with translate_os_errors(Path(name)):
            raise


def find_fault(path: Path, found: os.stat_result) -> StrangeFile | None:
    """Return why a file is not acceptable in a team directory; `None` if it is."""
    if stat.S_ISLNK(found.st_mode):
        return StrangeFile(path, _LINK, "put the file itself in its place")
    if not stat.S_ISREG(found.st_mode):
        return StrangeFile(path, "not a regular file", "move it away and try again")
    if found.st_uid != os.geteuid():
        whose = f"another user's (uid {found.st_uid})"
        return StrangeFile(path, whose, "move it away, or put a copy of your own in its place")
    if found.st_nlink > 1:
        shared = "a hard link: the same file has another name as well"
        return StrangeFile(path, shared, "put a copy in its place, with `cp` and `mv`")
    return None


@contextmanager
def private_umask() -> Iterator[None]:
    """Create files in the block for their owner only, with all permissions of their mode.

    A later chmod would be too late if the process is killed in between. Only one thread at a time
    may enter: the umask belongs to the process, and two threads would restore each other's.
    """
    with _UMASK:
        before = os.umask(_PRIVATE_UMASK)
        try:
            yield
        finally:
            os.umask(before)


def _check(fd: int, path: Path) -> None:
    if (strange := find_fault(path, os.fstat(fd))) is not None:
        raise strange from OSError(errno.EINVAL, str(strange))


def _open(path: Path, flags: int) -> int:
    try:
        return _open_or_make(path, flags)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link; a FIFO or a socket
            raise
        strange = find_fault(path, path.lstat())
        if strange is None:  # the file was replaced meanwhile
            raise
        raise strange from error


def _open_or_make(path: Path, flags: int) -> int:
    if not flags & os.O_EXCL:  # most files exist and need no umask
        try:
            return os.open(path, flags & ~os.O_CREAT | _FLAGS)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
    with private_umask():
        return os.open(path, flags | _FLAGS, PRIVATE_FILE)
