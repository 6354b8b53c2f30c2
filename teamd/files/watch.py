"""Waiting for a folder to change without using any CPU.

What comes is a hint and never the truth: whoever waits looks again itself, and looks now and then
without any hint, since file systems and queues can lose one.

A queue stays with the folder that it was opened for, whatever comes to stand under the name. So
what moves, removes or replaces the folder, or the one it is in, is watched for as well: the folder
that stands there then is watched instead, and since nobody knows what was missed, a look has to
tell. While there is none, there are no hints.
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


T = TypeVar("T")

SLOW_SECONDS: Final = 30.0
BLIND_SECONDS: Final = 0.5
_FOLDERS: Final = frozenset({"", ".."})


class Watch(ABC):
    """A watched folder: whichever stands under the name, also where another one takes its place."""

    _queue: Any  # has `fileno` and `close`
    _standing: tuple[int, ...] | None = None  # which folder is watched

    @property
    def recheck_seconds(self) -> float:
        """The time for which to rely on hints alone; it changes where the folder comes and goes."""
        return BLIND_SECONDS if self._standing is None else SLOW_SECONDS

    def fileno(self) -> int:
        """A descriptor that is readable when something changed."""
        return int(self._queue.fileno())

    @abstractmethod
    def changed(self) -> set[str] | None:
        """The names that changed since the last call; `None` where only a look can tell."""

    def close(self) -> None:
        """Give the descriptors back."""
        self._queue.close()


class _FolderWatch(Watch):
    """Watches with a queue of the system's."""

    def __init__(self, folder: Path, wanted: Callable[[str], bool] | None) -> None:
        self._folder, self._parent = folder, folder.parent
        self._wanted = wanted
        self._looked_at = str(folder), str(folder.parent)  # which takes longer than to look
        try:
            self._add()
        except OSError:
            self.close()
            raise

    @abstractmethod
    def _add(self) -> None:
        """Watch the folder that stands there, and the one above."""

    @abstractmethod
    def _let_go(self) -> None:
        """Watch nothing any more."""

    def _identify(self) -> tuple[int, ...] | None:
        """Identify the folder under the name, and the one it is in; `None` where there is none."""
        with suppress(OSError):
            found, above = map(os.stat, self._looked_at)
            return found.st_dev, found.st_ino, above.st_dev, above.st_ino
        return None

    def _renew(self) -> None:
        self._let_go()
        self._standing = None
        with suppress(OSError):  # nothing stands there now
            self._add()


class InotifyWatch(_FolderWatch):
    """inotify(7): one queue for the folder, every file in it, and the folder above.

    Where only some of the files are wanted, each of these is watched by itself: else whatever is
    written to another one would wake whoever waits.
    """

    def __init__(self, folder: Path, wanted: Callable[[str], bool] | None = None) -> None:

        self._in_folder = self._above = -1  # watch descriptors
        self._names: dict[int, set[str]] = {}  # of files that are watched by themselves
        self._written = MODIFY
        self._file = MODIFY | DONT_FOLLOW
        self._gone = IGNORED
        self._files = CREATE | MOVED_TO | DELETE
        if wanted is None:
            self._files |= MODIFY
        self._away = MOVE_SELF | DELETE_SELF
        self._lost = self._away | IGNORED | UNMOUNT
        self._overflow = Q_OVERFLOW
        self._queue = Inotify()
        super().__init__(folder, wanted)

    def changed(self) -> set[str] | None:
        """The names that changed; `None` where only a look can tell."""
        events = self._queue.take()
        watched = (self._in_folder, self._above)
        lost = any(mask & self._lost for number, mask, _ in events if number in watched)
        if lost or self._standing is None or self._standing != self._identify():
            self._renew()
            return None
        if any(mask & self._overflow for _, mask, _ in events):
            self._renew()  # what came into the folder may not be watched
            return None
        names = {name for number, _, name in events if number == self._in_folder}
        if self._wanted is not None:
            names = set(filter(self._wanted, names))
            try:
                for name in names:  # maybe another file by now
                    self._add_file(name)
            except OSError:
                self._standing = None
                return None
            names |= self._take_written(events)
        return names

    def _take_written(self, events: list[tuple[int, int, str]]) -> set[str]:
        """Return which of the files that are watched by themselves were written to."""
        written = [number for number, mask, _ in events if mask & self._written]
        names = [self._names.get(number, set()) for number in written]
        for number, mask, _ in events:
            if mask & self._gone:
                self._names.pop(number, None)
        return set[str]().union(*names)

    def _let_go(self) -> None:
        for watched in (self._in_folder, self._above, *self._names):
            with suppress(OSError):  # gone with its folder
                self._queue.remove(watched)
        self._names = {}
        self._queue.take()  # each says that it is watched no more

    def _add(self) -> None:
        standing = self._identify()  # first: what is replaced meanwhile is seen to differ
        self._in_folder = self._queue.add(self._folder, self._files | self._away)
        with suppress(OSError):  # one may go through a folder that one may not read
            self._above = self._queue.add(self._parent, self._away)
        if self._wanted is not None:
            for entry in os.scandir(self._folder):
                if self._wanted(entry.name):
                    self._add_file(entry.name)
        self._standing = standing

    def _add_file(self, name: str) -> None:
        try:
            number = self._queue.add(self._folder / name, self._file)
        except FileNotFoundError:  # gone meanwhile
            return
        except OSError:  # none that one may read, or this user watches too many: all are watched
            self._files |= self._written
            self._queue.add(self._folder, self._files | self._away)
        else:
            self._names.setdefault(number, set()).add(name)


class KqueueWatch(_FolderWatch):
    """kqueue(2): a queue of events for the folder, each of its files, and the folder above."""

    def __init__(self, folder: Path, wanted: Callable[[str], bool] | None = None) -> None:
        api: Any = select
        self._queue = api.kqueue()
        self._names: dict[int, str] = {}
        self._files = api.KQ_NOTE_WRITE | api.KQ_NOTE_EXTEND
        self._away = api.KQ_NOTE_RENAME | api.KQ_NOTE_DELETE
        super().__init__(folder, wanted)

    def changed(self) -> set[str] | None:
        """The names that changed; `None` where only a look can tell."""
        events = self._queue.control([], 256, 0)
        folders = [event for event in events if self._names[event.ident] in _FOLDERS]
        lost = any(event.fflags & self._away for event in folders)
        if lost or self._standing is None or self._standing != self._identify():
            self._renew()
            return None
        names = {self._names[event.ident] for event in events}
        for gone in {event.ident for event in events if event.fflags & self._away}:
            del self._names[gone]
            os.close(gone)  # another file may stand under the name, and is watched in a moment
        if "" in names:
            names |= self._add_files()
            if names <= _FOLDERS and self._wanted is None:
                return None
        return names - _FOLDERS

    def close(self) -> None:
        """Give the descriptors back."""
        self._let_go()
        super().close()

    def _let_go(self) -> None:
        for fd in self._names:
            os.close(fd)  # which takes it out of the queue
        self._names = {}

    def _add(self) -> None:
        standing = self._identify()  # first: what is replaced meanwhile is seen to differ
        self._open(self._folder, "", self._files | self._away)
        with suppress(OSError):  # one may go through a folder that one may not read
            self._open(self._parent, "..", self._away)
        self._add_files()
        self._standing = standing

    def _add_files(self) -> set[str]:
        there = {entry.name for entry in os.scandir(self._folder)}
        there = set(filter(self._wanted or bool, there))
        new = there - set(self._names.values())
        for name in new:
            with suppress(OSError):  # gone meanwhile; or a link, of which nobody reads
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
    """No hints at all: whoever waits looks twice a second."""

    def __init__(self) -> None:
        self._queue, self._writer = map(FileIO, os.pipe())  # nothing is ever written

    def changed(self) -> set[str] | None:
        """The names that changed; `None` where only a look can tell."""
        return None

    def close(self) -> None:
        """Give the descriptors back."""
        super().close()
        self._writer.close()


def watch(folder: Path, wanted: Callable[[str], bool] | None = None) -> Watch:
    """Watch the files of a folder with what the system offers, or blindly where it refuses.

    Args:
        folder: it may come later.
        wanted: which names are of interest; by default all.
    """
    with suppress(OSError):  # Linux allows 128 inotify instances a user
        kind = InotifyWatch if sys.platform == "linux" else KqueueWatch
        return kind(folder, wanted)
    return BlindWatch()


def wait_for(
    folder: Path, look: Callable[[], T | None], *, timeout_seconds: float, also: Iterable[Path] = ()
) -> T | None:
    """Return what `look` finds as soon as it finds something; `None` when the time is over.

    It looks when something has changed in the folder or one of the others, and now and then.
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
            select.select(watches, [], [], min(left, recheck, 1.0))
            for watching in watches:
                watching.changed()
