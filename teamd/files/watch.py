"""Waiting for a folder to change without using any CPU.

What comes is a hint and never the truth: whoever waits looks again itself, and looks now and then
without any hint, since file systems and queues can lose one.
"""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from teamd.clocks import Deadline
from teamd.files.folder_events import (
    BLIND_SECONDS,
    SLOW_SECONDS,
    BlindWatch,
    InotifyWatch,
    KqueueWatch,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["BLIND_SECONDS", "SLOW_SECONDS", "Watch", "wait_for", "watch"]

T = TypeVar("T")


class Watch(Protocol):
    """A watched folder: whichever stands under the name, also where another one takes its place."""

    @property
    def recheck_seconds(self) -> float:
        """How long to rely on hints alone; it changes where the folder comes and goes."""

    def fileno(self) -> int:
        """A descriptor that is readable when something changed."""

    def changed(self) -> set[str] | None:
        """The names that changed since the last call; `None` where only a look can tell."""

    def close(self) -> None:
        """Give the descriptors back."""


def watch(folder: Path) -> Watch:
    """Watch the files of a folder with what the system offers, or blindly where it refuses."""
    with suppress(OSError):  # Linux allows 128 inotify instances a user
        return InotifyWatch(folder) if sys.platform == "linux" else KqueueWatch(folder)
    return BlindWatch()


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
