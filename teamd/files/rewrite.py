"""Replace the content of a person's file and keep its other properties."""

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
# The folder cannot take a new file, or the file is a mount point.
_NO_RENAME: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY}
# The kernel sets or removes these when content is written: checksums, program capabilities.
_OF_CONTENT: Final = {"security.capability", "security.ima", "security.evm"}
_PERMISSIONS: Final = 0o777  # new content does not inherit setuid, as with write(2)


def rewrite(path: Path, data: bytes, *, confirm: Callable[[], None] = lambda: None) -> None:
    """Replace a file's content; keep its owner, group, mode, extended attributes and hard links.

    If possible, a new file with the same properties replaces the old one by a rename. Readers see,
    and crashes leave, the old or the new content, never a part. Otherwise the content is written
    into the file itself, and a reader can see, or a crash can leave, a part of it. This happens
    when:

    - the file has hard links: after a rename those would still have the old content;
    - its owner, group or attributes cannot be given to a new file: an ordinary user edits another
      user's file in a shared folder, and a rename would change the owner;
    - the folder cannot take a new file, or the file is a mount point: a rename is impossible.

    An error leaves the old content in both cases.

    Args:
        path: a regular file.
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
    """Replace the file by a new one with the same properties; return whether that is possible."""
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
        with suppress(OSError):  # the temporary name is gone after the rename
            aside.unlink()
    sync_directory(path.parent)
    return True


def _make_like(new: int, old: int) -> bool:
    """Copy owner, attributes and mode from an old file to a new one; return whether that worked."""
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
        if present.get(name) != value:  # the security label is mostly equal, and may be unsettable
            os.setxattr(new, name, value)
    for name in present.keys() - wanted.keys():  # an ACL that new files inherit from the folder
        os.removexattr(new, name)


def _attributes(fd: int) -> dict[str, bytes]:
    """Return a file's extended attributes, including ACLs; Python reads them on Linux only."""
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
    """Write new content into a file; an error restores the old content."""
    before = files.read_descriptor(fd)
    confirm()
    try:
        _put(fd, data)
    except BaseException:
        with suppress(OSError):
            _put(fd, before)  # its blocks are still allocated, so this works on a full disk
        raise
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & ~_PERMISSIONS:
        with suppress(PermissionError):  # the kernel has removed setuid already: only root keeps it
            os.fchmod(fd, mode & _PERMISSIONS)


def _put(fd: int, data: bytes) -> None:
    files.write_all(fd, data, 0)
    os.ftruncate(fd, len(data))
    files.sync(fd)
