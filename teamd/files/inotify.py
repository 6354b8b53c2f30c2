"""inotify(7), a queue of the kernel's: what happens to files and folders that are watched."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from io import FileIO
from pathlib import Path
from struct import Struct
from typing import Any, Final

# As <sys/inotify.h> has them.
MODIFY: Final = 0x2
MOVED_TO: Final = 0x80
CREATE: Final = 0x100
DELETE: Final = 0x200
DELETE_SELF: Final = 0x400
MOVE_SELF: Final = 0x800
UNMOUNT: Final = 0x2000
Q_OVERFLOW: Final = 0x4000
IGNORED: Final = 0x8000
DONT_FOLLOW: Final = 0x2000000
_HEAD: Final = Struct("iIII")  # watch, mask, cookie, bytes of the name
_BYTES: Final = 1 << 12  # at once
_LONGEST_EVENT: Final = _HEAD.size + 256  # with a name of 255 bytes and its end


class Inotify(FileIO):
    """A queue; it is readable while there are events.

    Raises:
        OSError: this user has too many.
    """

    def __init__(self) -> None:
        super().__init__(_call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK), "rb")

    def add(self, path: Path, mask: int) -> int:
        """Watch a file or a folder; return the number of the watch.

        Raises:
            OSError: it cannot be watched.
        """
        return _call("inotify_add_watch", self.fileno(), os.fsencode(path), mask)

    def remove(self, watch: int) -> None:
        """Watch that no more; the queue says `IGNORED` of it.

        Raises:
            OSError: it is not watched.
        """
        _call("inotify_rm_watch", self.fileno(), watch)

    def take(self) -> list[tuple[int, int, str]]:
        """Return what has happened since the last call.

        Returns:
            For each event the number of the watch, what happened, and to which file of a folder.
        """
        events = []
        full = True
        while full and (data := self.read(_BYTES)):  # `None` where there is nothing more
            full = len(data) > _BYTES - _LONGEST_EVENT
            at = 0
            while at < len(data):
                watch, mask, _, size = _HEAD.unpack_from(data, at)
                name = data[at + _HEAD.size : at + _HEAD.size + size].rstrip(b"\0")
                events.append((watch, mask, os.fsdecode(name)))
                at += _HEAD.size + size
        return events


def _call(name: str, *arguments: int | bytes) -> int:
    found: int = getattr(_libc(), name)(*arguments)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found


@cache
def _libc() -> Any:
    """Return the C library that this process runs by."""
    return ctypes.CDLL(None, use_errno=True)
