"""The one watcher of a team's files: a thread that has somebody look when something changed."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Final

from teamd.files.watch import Watch, watch

PAUSE_SECONDS: Final = 0.25  # between two looks: at most four a second
_REST_SECONDS: Final = 2.0  # what no file tells, such as CPU and memory, is looked at so often
_REST_TIMES: Final = 200  # and costs at most this part of a core


class FolderWatcher(Thread):
    """Calls `look` when files of some folders have changed, and now and then.

    Args:
        folders: what is watched.
        look: called in this thread, at most four times a second.
    """

    def __init__(self, folders: Iterable[Path], look: Callable[[], None]) -> None:
        super().__init__(name="watcher", daemon=True)  # a slow disk does not keep anybody here
        self._folders = tuple(folders)
        self._look = look
        self._ended = Event()
        self._ears, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        self._closing = Lock()  # nobody writes to a descriptor that may be another's by now
        self._open = True

    def look_soon(self) -> None:
        """Have it look though nothing has changed."""
        with self._closing, suppress(BlockingIOError):
            if self._open:
                os.write(self._bell, b"!")

    def end(self) -> None:
        """Have it end; does not wait."""
        self._ended.set()
        self.look_soon()

    def run(self) -> None:
        """Look until told to end."""
        try:
            self._watch()
        finally:
            with self._closing:
                self._open = False
                os.close(self._ears)
                os.close(self._bell)

    def _watch(self) -> None:
        with ExitStack() as stack:
            watches = [stack.enter_context(closing(watch(one))) for one in self._folders]
            while not self._ended.is_set():
                began = time.monotonic()
                self._look()
                took = time.monotonic() - began
                self._ended.wait(PAUSE_SECONDS)
                hints = min(_REST_SECONDS, *(one.recheck_seconds for one in watches))
                rest = max(hints, _REST_TIMES * took)
                heard: list[Watch | int] = [*watches, self._ears]
                ready, _, _ = select.select(heard, [], [], rest)
                if self._ears in ready:
                    os.read(self._ears, 1 << 10)
                for one in watches:
                    one.changed()
