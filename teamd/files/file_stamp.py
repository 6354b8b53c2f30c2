"""Find out whether a file or folder has changed since it was read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

# Device, inode, mode, link count, size, time of the last write, time of the last change.
Version = tuple[int, int, int, int, int, int, int]

_SETTLED_NANOSECONDS: Final = 100_000_000  # more than one tick of any file system's clock
_version: Final[Callable[[os.stat_result], Version]] = attrgetter(
    "st_dev", "st_ino", "st_mode", "st_nlink", "st_size", "st_mtime_ns", "st_ctime_ns"
)


def version_of(path: Path) -> Version | None:
    """Return the version of a file, folder or link; `None` if it does not exist."""
    try:
        return _version(path.lstat())
    except OSError:
        return None


def is_settled(version: Version | None) -> bool:
    """Return whether one clock tick has passed, so that the next change gets another version."""
    return version is not None and time.time_ns() - version[-1] > _SETTLED_NANOSECONDS


def remember(path: Path, read: Callable[[], T]) -> Callable[[], T]:
    """Return a function that calls `read` only if the file has changed since the last call.

    Args:
        path: the file, or a folder whose files are only ever replaced.
        read: reads it.
    """
    known: tuple[Version, T] | None = None

    def get() -> T:
        nonlocal known
        version = version_of(path)
        if known is not None and version == known[0]:
            return known[1]
        found = read()
        known = (version, found) if version is not None and is_settled(version) else None
        return found

    return get
