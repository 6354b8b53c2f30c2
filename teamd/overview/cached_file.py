"""What was read of a file or folder, for as long as that has not changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from teamd.files.file_stamp import Version, is_settled, version_of

T = TypeVar("T")


def remember(path: Path, read: Callable[[], T]) -> Callable[[], T]:
    """Return a function that reads a file only where it has changed.

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
        # What was changed just now may change again within one tick of the file system's clock.
        known = (version, found) if version is not None and is_settled(version) else None
        return found

    return get
