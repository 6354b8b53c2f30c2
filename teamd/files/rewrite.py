"""Give a file of the person's new content and leave everything else about it as it is."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from teamd.errors import translate_os_errors
from teamd.files import files
from teamd.files.directories import sync_directory
from teamd.files.safe_open import PRIVATE_FILE

_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# The folder takes no new file, or the file is a mount point.
_NO_RENAME: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY}
# The kernel itself sets or removes these when content is written: checksums, rights of a program.
_OF_CONTENT: Final = {"security.capability", "security.ima", "security.evm"}
_PERMISSIONS: Final = 0o777  # new content inherits no setuid, as with write(2)


def rewrite(path: Path, data: bytes, *, confirm: Callable[[], None] = lambda: None) -> None:
    """Replace a file's content; keep its owner, group, mode, extended attributes and hard links.

    A new file takes the old one's place by a rename where it can be made like the old one: a reader
    sees the old or the new content, never a part, and so does a crash. Otherwise the content is
    written into the file itself, where a reader or a crash can catch a part of it:

    - the file has further names (hard links): a rename would leave the old content under those;
    - its owner, group or attributes cannot be given to a new file: an ordinary user edits another
      user's file in a shared folder, and a rename would take it from its owner;
    - the folder takes no new file, or the file is a mount point: nothing can be renamed there.

    A failure leaves the old content in both cases.

    Args:
        path: of a regular file.
        data: the new content.
        confirm: called right before the change; an exception from it leaves the old content.

    Raises:
        StoreError: disk full, read-only, …
    """
    with translate_os_errors(path):
        fd = os.open(path, _FLAGS)
        try:
            if os.fstat(fd).st_nlink > 1 or not _replace(path, fd, data, confirm):
                _overwrite(fd, data, confirm)
        finally:
            os.close(fd)


def _replace(path: Path, old: int, data: bytes, confirm: Callable[[], None]) -> bool:
    """Put a new file like the old one in its place; return whether that is possible."""
    aside = files.name_beside(path)
    try:
        new = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
        with os.fdopen(new, "wb", buffering=0):
            if not _make_like(new, old):
                return False
            files.write_all(new, data, 0)
            files.sync(new)
        confirm()
        aside.rename(path)
    except OSError as error:
        if error.errno in _NO_RENAME:
            return False
        raise
    finally:
        with suppress(OSError):  # it is not there after the rename
            aside.unlink()
    sync_directory(path.parent)
    return True


def _make_like(new: int, old: int) -> bool:
    """Give a new file the owner, attributes and mode of an old one; return whether it has them."""
    was, now = os.fstat(old), os.fstat(new)
    try:
        if (was.st_uid, was.st_gid) != (now.st_uid, now.st_gid):
            os.fchown(new, was.st_uid, was.st_gid)
        _copy_attributes(new, old)
        os.fchmod(new, was.st_mode & _PERMISSIONS)  # last: until then the new file is private
    except OSError:
        return False
    return True


def _copy_attributes(new: int, old: int) -> None:
    wanted, present = _attributes(old), _attributes(new)
    for name, value in wanted.items():
        if present.get(name) != value:  # the security label mostly is the same, and may not be set
            os.setxattr(new, name, value)
    for name in present.keys() - wanted.keys():  # the ACL that the folder gives to new files
        os.removexattr(new, name)


def _attributes(fd: int) -> dict[str, bytes]:
    """Return a file's extended attributes, ACLs among them; Python reads them on Linux only."""
    if sys.platform != "linux":
        return {}
    try:
        names = set(os.listxattr(fd)) - _OF_CONTENT
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise
    return {name: os.getxattr(fd, name) for name in names}


def _overwrite(fd: int, data: bytes, confirm: Callable[[], None]) -> None:
    """Write new content into a file; a failure restores the old content."""
    before = files.read_descriptor(fd)
    confirm()
    try:
        _put(fd, data)
    except BaseException:
        with suppress(OSError):
            _put(fd, before)  # its blocks are still the file's, so a full disk does not matter
        raise
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & ~_PERMISSIONS:
        with suppress(PermissionError):  # then the kernel has done it: only root keeps setuid
            os.fchmod(fd, mode & _PERMISSIONS)


def _put(fd: int, data: bytes) -> None:
    files.write_all(fd, data, 0)
    os.ftruncate(fd, len(data))
    files.sync(fd)
