"""Versions of files and folders: what differs whenever one was replaced or changed."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final

# Device, node, mode, names, bytes; when it was written to, and when anything of it changed.
Version = tuple[int, int, int, int, int, int, int]

_SETTLED_NANOSECONDS: Final = 100_000_000  # more than one tick of any file system's clock
_PATH_SECONDS: Final = 1.0
_version: Final[Callable[[os.stat_result], Version]] = attrgetter(
    "st_dev", "st_ino", "st_mode", "st_nlink", "st_size", "st_mtime_ns", "st_ctime_ns"
)
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def version_of(path: Path | str) -> Version | None:
    """Return the version of what stands under a name, be it a link; `None` where nothing does."""
    try:
        return _version(os.lstat(path))
    except OSError:
        return None


def is_settled(version: Version | None) -> bool:
    """Return whether a version is surely known: no second change can have the same time."""
    return version is not None and time.time_ns() - version[-1] > _SETTLED_NANOSECONDS


def has_settled_names(version: Version) -> bool:
    """Return whether it is surely known which names stand in a folder of this version."""
    return time.time_ns() - version[-2] > _SETTLED_NANOSECONDS


def is_link(version: Version) -> bool:
    """Return whether it is a symbolic link."""
    return stat.S_ISLNK(version[2])


@dataclass(slots=True)
class _Opened:
    """A descriptor, who opened it, the version that it had, and until when that is believed."""

    fd: int
    process: int
    version: Version
    until: float


class KeptVersion:
    """The version of a file or folder that is looked at again and again.

    From its second look on it asks a descriptor, which takes half the time of walking the path. A
    file that is replaced, removed, renamed or changed tells so itself. That a folder further up was
    renamed it does not tell, so for that the path is walked once a second: until then, whoever asks
    goes on with the folder that it knows, under its new name.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._kept: list[_Opened] = []  # a thread takes it out, and another one walks the path
        self._seen: Version | None = None

    def read(self) -> Version | None:
        """Return the version as it is now; `None` where nothing stands there.

        One that has not changed is the same object.
        """
        try:
            opened = self._kept.pop()
        except IndexError:
            return self._look(None)
        if time.monotonic() < opened.until:
            try:
                version = _version(os.fstat(opened.fd))
            except OSError:  # closed in a process that was forked
                return self._look(opened)
            if version == opened.version:
                self._kept.append(opened)
                return opened.version
        return self._look(opened)

    def close(self) -> None:
        """Give the descriptor back."""
        while self._kept:
            _close(self._kept.pop())

    def __del__(self) -> None:
        self.close()

    def _look(self, opened: _Opened | None) -> Version | None:
        """Walk the path; where the same stands there as before, keep a descriptor of it."""
        version, before = version_of(self._path), self._seen
        same = version is not None and before is not None and version[:2] == before[:2]
        if opened is not None and not (same and opened.process == os.getpid()):
            _close(opened)
            opened = None
        if opened is None and same:
            opened = self._open()
        if opened is not None and version is not None:
            opened.version, opened.until = version, time.monotonic() + _PATH_SECONDS
            self._kept.append(opened)
            while len(self._kept) > 1:
                _close(self._kept.pop(0))
        self._seen = version
        return version

    def _open(self) -> _Opened | None:
        """Open what stands there now; what it is shows by its version at the next look."""
        try:
            fd = os.open(self._path, _FLAGS)
        except OSError:  # a link, or nothing by now
            return None
        return _Opened(fd, os.getpid(), (0,) * 7, 0.0)


def _close(opened: _Opened) -> None:
    """Close a descriptor; in a process that was forked its number may be another file's.

    It was for looks alone, so a failure says nothing of what was written.
    """
    if opened.process == os.getpid():
        with suppress(OSError):
            os.close(opened.fd)
