"""What ended teammates left behind: a supervisor adopts it (see `kernel`) and ends it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psutil

from teamd.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from teamd.identity import Identity
    from teamd.journal import Journal

_PATIENCE_SECONDS: Final = 5.0
_REAPERS_SECONDS: Final = 0.25  # what is above a tool's program ends all under it by itself
_PAUSE_SECONDS: Final = 0.01


def end_former(processes: Iterable[Identity], *, seconds: float, journal: Journal) -> None:
    """End what a supervisor that was killed left running; politely, then by force."""
    left = [process for process in processes if process.alive]
    for process in left:
        journal.warn("former process ended", pid=process.pid)
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while left := [process for process in left if process.alive]:
        if time.monotonic() > deadline:
            for process in left:
                process.signal(signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


class Orphans:
    """This process's children that it did not fork itself.

    Args:
        others: the supervisors of other teams: one that an agent started is adopted, too, and
            leads a life of its own. It may raise a `StoreError`.
    """

    def __init__(self, journal: Journal, others: Callable[[], set[int]]) -> None:
        self._me = psutil.Process()
        self._journal = journal
        self._others = others

    def end(self, *, spare: set[int]) -> None:
        """Reap every child but the spared, and kill those that do not end; theirs come next.

        Only children of this process are touched, and none of them can have another's pid before
        it is reaped here.
        """
        try:
            self._end(spare)
        # No descriptors left, say: nobody is killed of whom it is not known whether it is one of
        # the others, and the next time finds them as well.
        except (OSError, StoreError) as error:
            self._journal.error("orphans not looked for", error)

    def _end(self, spare: set[int]) -> None:
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < _PATIENCE_SECONDS:
            found = list(self._living(spare))
            if found:
                others = self._others()
                found = [orphan for orphan in found if orphan.pid not in others]
            if not found:
                return
            # A reaper is not killed at its work: were this process killed next, nobody would
            # be left to end the rest.
            for orphan in found if passed > _REAPERS_SECONDS else ():
                self._journal.note("orphan ended", pid=orphan.pid)
                with suppress(psutil.NoSuchProcess):
                    orphan.kill()
            time.sleep(_PAUSE_SECONDS)

    def _living(self, spare: set[int]) -> Iterator[psutil.Process]:
        for child in self._me.children():
            if child.pid in spare:
                continue
            with suppress(ChildProcessError):
                if os.waitpid(child.pid, os.WNOHANG)[0] == 0:
                    yield child
