"""Opening a file of a team: one of this user's own, under no other name, and through no link.

Whoever may write into a team directory, or gave it away, could otherwise have a command read or
write any file of the person's, or wait for ever at a FIFO. All that is asked of a file is asked of
the open descriptor. Folders are looked at just before: only this user can change them meanwhile.
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
# To open a folder itself, for what is beneath it; never a link to one.
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UMASK: Final = RLock()  # that of `threading`, which need not be loaded
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO would have us wait for ever
_REMEDY: Final = "put the folder itself in its place"
_LINK: Final = "a symbolic link, which is not followed in a team directory"


def safe_open(path: Path, flags: int) -> int:
    """Open a file of a team; one that is made is private, whatever the umask.

    Raises:
        StrangeFile: it is a link, no regular file or another user's, or its folder is a link.
        OSError: it cannot be opened.
    """
    _check_folder(os.path.dirname(os.fspath(path)), _REMEDY)  # noqa: PTH120 -- much quicker
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
    """Refuse a folder that is a symbolic link, or that is in one.

    A team directory's own path holds no links, and no file in it lies deeper than two folders.

    Raises:
        StrangeFile: it is, or is in one.
        StoreError: it cannot be looked at.
    """
    _check_folder(os.fspath(folder), remedy)


def _check_folder(name: str, remedy: str) -> None:
    for level in (name, os.path.dirname(name)):  # noqa: PTH120 -- as text, before every look
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
    """Return why a file is none that a team may have; `None` where it may be one."""
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
    """Make what is made inside the block its owner's alone, with all that its mode gives him.

    A mode that is set afterwards would come too late for a process that is killed in between. One
    thread at a time: the umask is the process's, and two at once would restore each other's.
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
        if strange is None:  # it is another one by now
            raise
        raise strange from error


def _open_or_make(path: Path, flags: int) -> int:
    if not flags & os.O_EXCL:  # most files are there, and need no umask
        try:
            return os.open(path, flags & ~os.O_CREAT | _FLAGS)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
    with private_umask():
        return os.open(path, flags | _FLAGS, PRIVATE_FILE)
