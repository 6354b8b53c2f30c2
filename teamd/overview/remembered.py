"""What was read of a file or folder, for as long as that has not changed."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Final, TypeVar

    T = TypeVar("T")
_SETTLED_NANOSECONDS: Final = 100_000_000


def remember(path: Path, read: Callable[[], T]) -> Callable[[], T]:
    """Return a function that reads a file only where it has changed.

    Args:
        path: the file, or a folder whose files are only ever replaced.
        read: reads it.
    """
    known: tuple[tuple[int, ...], T] | None = None

    def get() -> T:
        nonlocal known
        version = _version(path)
        if known is not None and version == known[0]:
            return known[1]
        found = read()
        # What was changed just now may change again within one tick of the file system's clock.
        settled = version is not None and time.time_ns() - version[-1] > _SETTLED_NANOSECONDS
        known = (version, found) if version is not None and settled else None
        return found

    return get


def _version(path: Path) -> tuple[int, ...] | None:
    """Return what differs whenever it has changed; `None` where nothing is there."""
    try:
        now = os.lstat(path)
    except OSError:
        return None
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
