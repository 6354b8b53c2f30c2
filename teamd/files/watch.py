"""Wait for changes in a folder without using CPU.

A reported change is only a hint. Callers check the files themselves, and also check now and then
without a hint, because file systems and queues can lose events.

A queue watches the folder that existed when it was opened, not the folder's name. So a watch also
follows moves, removals and replacements of the folder and of its parent. It then watches the new
folder and reports an unknown change, because it may have missed events. While the folder does not
exist, there are no hints.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from struct import Struct
from typing import Any, Final, TypeVar

from teamd.clocks import Deadline

# From <sys/inotify.h>.
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
_AWAY: Final = MOVE_SELF | DELETE_SELF
_LOST: Final = _AWAY | IGNORED | UNMOUNT
_HEAD: Final = Struct("iIII")  # watch, mask, cookie, length of the name
_BYTES: Final = 1 << 12  # per read
_LONGEST_EVENT: Final = _HEAD.size + 256  # a name of 255 bytes and its NUL


class Inotify(FileIO):
    """An inotify queue; it is readable while there are events.

    Raises:
        OSError: this user has too many queues.
    """

    def __init__(self) -> None:
        super().__init__(_call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK), "rb")

    def add(self, path: Path, mask: int) -> int:
        """Watch a file or folder; return the watch descriptor.

        Raises:
            OSError: the path cannot be watched.
        """
        return _call("inotify_add_watch", self.fileno(), os.fsencode(path), mask)

    def remove(self, watch: int) -> None:
        """Stop watching; the queue then reports `IGNORED` for the descriptor.

        Raises:
            OSError: the descriptor is not watched.
        """
        _call("inotify_rm_watch", self.fileno(), watch)

    def take(self) -> list[tuple[int, int, str]]:
        """Return the events since the last call.

        Returns:
            For each event the watch descriptor, the mask, and the name of the file in a folder.
        """
        events = []
        full = True
        while full and (data := self.read(_BYTES)):  # `None` when the queue is empty
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
    """Return the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


T = TypeVar("T")

SLOW_SECONDS: Final = 30.0
BLIND_SECONDS: Final = 0.5
_FOLDERS: Final = frozenset({"", ".."})


class Watch(ABC):
    """A watch on a folder's name, which follows the folder when it is replaced."""

    _queue: Any  # has `fileno` and `close`
    _standing: tuple[int, ...] | None = None  # identifies the watched folder

    @property
    def recheck_seconds(self) -> float:
        """How long to rely on hints alone; changes when the folder appears or disappears."""
        return BLIND_SECONDS if self._standing is None else SLOW_SECONDS

    def fileno(self) -> int:
        """Return a descriptor that is readable after a change."""
        return int(self._queue.fileno())

    @abstractmethod
    def changed(self) -> set[str] | None:
        """Return the names that changed since the last call; `None` if unknown."""

    def close(self) -> None:
        """Close the descriptors."""
        self._queue.close()


class _FolderWatch(Watch):
    """A watch that uses a queue of the operating system."""

    def __init__(self, folder: Path, wanted: Callable[[str], bool] | None) -> None:
        self._folder, self._parent = folder, folder.parent
        self._wanted = wanted
        # Strings, since converting the paths would take longer than the `stat` calls.
        self._looked_at = str(folder), str(folder.parent)
        try:
            self._add()
        except OSError:
            self.close()
            raise

    @abstractmethod
    def _add(self) -> None:
        """Watch the current folder of that name and its parent."""

    @abstractmethod
    def _let_go(self) -> None:
        """Remove all watches."""

    def _identify(self) -> tuple[int, ...] | None:
        """Identify the folder and its parent; `None` if one of them does not exist."""
        with suppress(OSError):
            found, above = map(os.stat, self._looked_at)
            return found.st_dev, found.st_ino, above.st_dev, above.st_ino
        return None

    def _renew(self) -> None:
        self._let_go()
        self._standing = None
        with suppress(OSError):  # the folder does not exist now
            self._add()


class InotifyWatch(_FolderWatch):
    """inotify(7): one queue for the folder, every file in it, and its parent.

    If only some files are wanted, each is watched separately; otherwise a write to any other file
    would wake the caller.
    """

    def __init__(self, folder: Path, wanted: Callable[[str], bool] | None = None) -> None:
        self._in_folder = self._above = -1  # watch descriptors
        self._names: dict[int, set[str]] = {}  # of files that are watched separately
        self._changes = CREATE | MOVED_TO | DELETE | (MODIFY if wanted is None else 0)
        self._queue = Inotify()
        super().__init__(folder, wanted)

    def changed(self) -> set[str] | None:
        events = self._queue.take()
        watched = (self._in_folder, self._above)
        lost = any(mask & _LOST for number, mask, _ in events if number in watched)
        if lost or self._standing is None or self._standing != self._identify():
            self._renew()
            return None
        if any(mask & Q_OVERFLOW for _, mask, _ in events):
            self._renew()  # new files in the folder may not be watched yet
            return None
        names = {name for number, _, name in events if number == self._in_folder}
        if self._wanted is not None:
            names = set(filter(self._wanted, names))
            try:
                for name in names:  # the name may be a new file now
                    self._add_file(name)
            except OSError:
                self._standing = None
                return None
            names |= self._take_written(events)
        return names

    def _take_written(self, events: list[tuple[int, int, str]]) -> set[str]:
        """Return the separately watched files that were written to."""
        written = [number for number, mask, _ in events if mask & MODIFY]
        names = [self._names.get(number, set()) for number in written]
        for number, mask, _ in events:
            if mask & IGNORED:
                self._names.pop(number, None)
        return set[str]().union(*names)

    def _let_go(self) -> None:
        for watched in (self._in_folder, self._above, *self._names):
            with suppress(OSError):  # removed with its folder
                self._queue.remove(watched)
        self._names = {}
        self._queue.take()  # each reports that its watch has ended

    def _add(self) -> None:
        standing = self._identify()  # first, so that a replacement meanwhile is noticed
        self._in_folder = self._queue.add(self._folder, self._changes | _AWAY)
        with suppress(OSError):  # a folder may be traversable but not readable
            self._above = self._queue.add(self._parent, _AWAY)
        if self._wanted is not None:
            for entry in os.scandir(self._folder):
                if self._wanted(entry.name):
                    self._add_file(entry.name)
        self._standing = standing

    def _add_file(self, name: str) -> None:
        try:
            number = self._queue.add(self._folder / name, MODIFY | DONT_FOLLOW)
        except FileNotFoundError:  # removed meanwhile
            return
        except OSError:  # unreadable, or too many watches: watch all files through the folder
            self._changes |= MODIFY
            self._queue.add(self._folder, self._changes | _AWAY)
        else:
            self._names.setdefault(number, set()).add(name)


class KqueueWatch(_FolderWatch):
    """kqueue(2): one queue for the folder, each of its files, and its parent."""

    def __init__(self, folder: Path, wanted: Callable[[str], bool] | None = None) -> None:
        api: Any = select
        self._queue = api.kqueue()
        self._names: dict[int, str] = {}
        self._files = api.KQ_NOTE_WRITE | api.KQ_NOTE_EXTEND
        self._away = api.KQ_NOTE_RENAME | api.KQ_NOTE_DELETE
        super().__init__(folder, wanted)

    def changed(self) -> set[str] | None:
        events = self._queue.control([], 256, 0)
        folders = [event for event in events if self._names[event.ident] in _FOLDERS]
        lost = any(event.fflags & self._away for event in folders)
        if lost or self._standing is None or self._standing != self._identify():
            self._renew()
            return None
        names = {self._names[event.ident] for event in events}
        for gone in {event.ident for event in events if event.fflags & self._away}:
            del self._names[gone]
            os.close(gone)  # a new file of that name is watched in a moment
        if "" in names:
            names |= self._add_files()
            if names <= _FOLDERS and self._wanted is None:
                return None
        return names - _FOLDERS

    def close(self) -> None:
        self._let_go()
        super().close()

    def _let_go(self) -> None:
        for fd in self._names:
            os.close(fd)  # this also removes it from the queue
        self._names = {}

    def _add(self) -> None:
        standing = self._identify()  # first, so that a replacement meanwhile is noticed
        self._open(self._folder, "", self._files | self._away)
        with suppress(OSError):  # a folder may be traversable but not readable
            self._open(self._parent, "..", self._away)
        self._add_files()
        self._standing = standing

    def _add_files(self) -> set[str]:
        there = {entry.name for entry in os.scandir(self._folder)}
        there = set(filter(self._wanted or bool, there))
        new = there - set(self._names.values())
        for name in new:
            with suppress(OSError):  # removed meanwhile, or a link, which nothing here reads
                self._open(self._folder / name, name, self._files | self._away)
        return new

    def _open(self, path: Path, name: str, notes: int) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        self._names[fd] = name
        api: Any = select
        flags = api.KQ_EV_ADD | api.KQ_EV_CLEAR
        event = api.kevent(fd, filter=api.KQ_FILTER_VNODE, flags=flags, fflags=notes)
        self._queue.control([event], 0, 0)


class BlindWatch(Watch):
    """A watch without hints; callers check twice a second."""

    def __init__(self) -> None:
        self._queue, self._writer = map(FileIO, os.pipe())  # nothing is ever written to it

    def changed(self) -> set[str] | None:
        return None

    def close(self) -> None:
        super().close()
        self._writer.close()


def watch(folder: Path, wanted: Callable[[str], bool] | None = None) -> Watch:
    """Watch the files of a folder through the operating system, or without hints if that fails.

    Args:
        folder: need not exist yet.
        wanted: selects names; by default all.
    """
    with suppress(OSError):  # Linux allows a user 128 inotify instances
        kind = InotifyWatch if sys.platform == "linux" else KqueueWatch
        return kind(folder, wanted)
    return BlindWatch()


def wait_for(
    folder: Path,
    look: Callable[[], T | None],
    *,
    timeout_seconds: float,
    also: Iterable[Path] = (),
    recheck_seconds: float = 1.0,
) -> T | None:
    """Return the first result of `look` that is not `None`; `None` after the timeout.

    `look` is called after each change in the folders, and at least every `recheck_seconds`.
    """
    deadline = Deadline.after(timeout_seconds)
    with ExitStack() as stack:
        watches = [stack.enter_context(closing(watch(one))) for one in (folder, *also)]
        while True:
            if (found := look()) is not None:
                return found
            if (left := deadline.left) <= 0:
                return None
            recheck = min(watching.recheck_seconds for watching in watches)
            select.select(watches, [], [], min(left, recheck, recheck_seconds))
            for watching in watches:
                watching.changed()
