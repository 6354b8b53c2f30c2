"""What was read of a file or folder, for as long as that has not changed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")
_SETTLED_NANOSECONDS: Final = 100_000_000


class Remembered(Generic[T]):
    """The content of a file, or of a folder whose files are only ever replaced.

    Args:
        path: the file or folder.
        read: reads it.
    """

    def __init__(self, path: Path, read: Callable[[], T]) -> None:
        self._path = path
        self._read = read
        self._known: tuple[tuple[int, ...], T] | None = None

    def get(self) -> T:
        """Return what stands there now."""
        version = self._version()
        if self._known is not None and version == self._known[0]:
            return self._known[1]
        found = self._read()
        # What was changed just now may change again within one tick of the file system's clock.
        settled = version is not None and time.time_ns() - version[-1] > _SETTLED_NANOSECONDS
        self._known = (version, found) if version is not None and settled else None
        return found

    def _version(self) -> tuple[int, ...] | None:
        """Return what differs whenever it has changed; `None` where nothing is there."""
        try:
            now = os.lstat(self._path)
        except OSError:
            return None
        return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
