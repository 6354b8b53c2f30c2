"""Waiting for a folder to change without using any CPU.

What comes is a hint and never the truth: whoever waits looks again itself, and looks now and then
without any hint, since file systems and queues can lose one.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from teamd.clocks import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

SLOW_SECONDS: Final = 30.0
BLIND_SECONDS: Final = 0.5


class Watch(Protocol):
    """A watched folder.

    Attributes:
        recheck_seconds: how long to rely on hints alone.
    """

    recheck_seconds: float

    def fileno(self) -> int:
        """A descriptor that is readable when something changed."""

    def changed(self) -> set[str] | None:
        """The names that changed since the last call; `None` where only a look can tell."""

    def close(self) -> None:
        """Give the descriptors back."""


def watch(folder: Path) -> Watch:
    """Watch the files of a folder with what the system offers, or blindly where it refuses."""
    with suppress(OSError):  # Linux allows 128 inotify instances a user
        return _InotifyWatch(folder) if sys.platform == "linux" else _KqueueWatch(folder)
    return _BlindWatch()


def wait_for(folder: Path, look: Callable[[], T | None], *, timeout_seconds: float) -> T | None:
    """Return what `look` finds as soon as it finds something; `None` when the time is over."""
    deadline = Deadline.after(timeout_seconds)
    watching = watch(folder)
    try:
        while True:
            if (found := look()) is not None:
                return found
            if (left := deadline.left) <= 0:
                return None
            select.select([watching], [], [], min(left, watching.recheck_seconds, 1.0))
            watching.changed()
    finally:
        watching.close()


class _InotifyWatch:
    """inotify(7): one queue for the folder and every file in it."""

    recheck_seconds = SLOW_SECONDS

    def __init__(self, folder: Path) -> None:
        from inotify_simple import INotify, flags  # noqa: PLC0415 -- 20 ms, only where one waits

        self._inotify: Any = INotify(nonblocking=True)
        self._overflow = flags.Q_OVERFLOW
        try:
            mask = flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.DELETE
            self._inotify.add_watch(folder, mask)
        except OSError:
            self._inotify.close()
            raise

    def fileno(self) -> int:
        return int(self._inotify.fileno())

    def changed(self) -> set[str] | None:
        events = list(self._inotify.read(timeout=0))
        if any(event.mask & self._overflow for event in events):
            return None
        return {event.name for event in events}

    def close(self) -> None:
        self._inotify.close()


class _KqueueWatch:
    """kqueue(2): a queue of events for the folder and for each of its files."""

    recheck_seconds = SLOW_SECONDS

    def __init__(self, folder: Path) -> None:
        self._kqueue: Any = select.kqueue()  # type: ignore[attr-defined, unused-ignore] # BSD only
        self._folder = folder
        self._names: dict[int, str] = {}
        self._add(folder, "")
        self._add_files()

    def fileno(self) -> int:
        return int(self._kqueue.fileno())

    def changed(self) -> set[str] | None:
        events = self._kqueue.control([], 256, 0)
        names = {self._names[event.ident] for event in events}
        if "" in names:
            names |= self._add_files()
        return names - {""}

    def close(self) -> None:
        for fd in self._names:
            os.close(fd)
        self._kqueue.close()

    def _add_files(self) -> set[str]:
        there = {entry.name for entry in os.scandir(self._folder)}
        new = there - set(self._names.values())
        for name in new:
            with suppress(FileNotFoundError):
                self._add(self._folder / name, name)
        return new

    def _add(self, path: Path, name: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._names[fd] = name
        api: Any = select
        event = api.kevent(
            fd,
            filter=api.KQ_FILTER_VNODE,
            flags=api.KQ_EV_ADD | api.KQ_EV_CLEAR,
            fflags=api.KQ_NOTE_WRITE | api.KQ_NOTE_EXTEND,
        )
        self._kqueue.control([event], 0, 0)


class _BlindWatch:
    """No hints at all: whoever waits looks twice a second."""

    recheck_seconds = BLIND_SECONDS

    def __init__(self) -> None:
        self._silent, self._writer = os.pipe()

    def fileno(self) -> int:
        return self._silent

    def changed(self) -> set[str] | None:
        return None

    def close(self) -> None:
        os.close(self._silent)
        os.close(self._writer)
