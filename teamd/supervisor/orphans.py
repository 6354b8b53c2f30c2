"""Ends the processes and releases the tasks that teammates leave behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import psutil

from teamd.board.board import Board
from teamd.board.files import Tasks, id_in
from teamd.board.news import find_claimers
from teamd.board.rules import gone_from
from teamd.errors import StoreError
from teamd.files.watch import SLOW_SECONDS, Watch
from teamd.journal import Journal
from teamd.process_id import Identity
from teamd.team.roster import Team

BOARD_PATIENCE_SECONDS: Final = 1.0  # a stopped writer must not stop the supervisor
_PATIENCE_SECONDS: Final = 5.0
_REAPERS_SECONDS: Final = 0.25  # for a reaper to end its processes by itself
_PAUSE_SECONDS: Final = 0.01


def end_former(processes: Iterable[Identity], *, seconds: float, journal: Journal) -> None:
    """End the processes that a killed supervisor left running, with SIGTERM and then SIGKILL."""
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


def end_orphans(*, spare: set[int], supervisors: Callable[[], set[int]], journal: Journal) -> None:
    """Reap the adopted children of this process; kill those that do not end, then their children.

    It touches only children of this process; their pids are not reused before it reaps them.

    Args:
        spare: the pids of children that were forked here.
        supervisors: returns the pids of other teams' supervisors. If an agent started one, it is
            adopted as well, and must live on. May raise a `StoreError`.
        journal: the log.
    """
    begun = time.monotonic()
    try:
        while (passed := time.monotonic() - begun) < _PATIENCE_SECONDS:
            pids = {child.pid for child in psutil.Process().children()} - spare
            found = [pid for pid in pids if _lives(pid)]
            if found:
                others = supervisors()
                found = [pid for pid in found if pid not in others]
            if not found:
                return
            # Reapers get time to work: if both they and this process were killed, nothing would end
            # the rest.
            for pid in found if passed > _REAPERS_SECONDS else ():
                journal.note("orphan ended", pid=pid)
                os.kill(pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own
            time.sleep(_PAUSE_SECONDS)
    # Such as a lack of descriptors. A process that may be another supervisor is not killed; the
    # next call finds it again.
    except (OSError, StoreError) as error:
        journal.error("orphans not looked for", error)


def _lives(pid: int) -> bool:
    """Reap a child if it has ended; return whether it has not."""
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    return False


@dataclass(slots=True)
class OrphanedTasks:
    """Releases the tasks of members that are gone.

    Attributes:
        board: with `teamd` as its user.
        watch: the watch on the tasks' folder.
    """

    board: Board
    watch: Watch
    journal: Journal
    _gone: set[str] = field(default_factory=set)
    _due_at: float = 0.0
    _tasks: Tasks = field(default_factory=Tasks)

    def claimers(self, names: set[str] | None, team: Team) -> list[str] | None:
        """Return the teammates that may have a new task after changes; `None` if all may.

        They are the owners of changed tasks, before and after, and of tasks that those blocked. A
        teammate that has lost its task may claim another one.

        Args:
            names: of the changed files; `None` if the watch has lost some.
            team: the members.
        """
        if names is None:
            return None
        changed = frozenset(filter(None, map(id_in, names)))
        if not changed:
            return []
        try:
            before, self._tasks = self._tasks, self.board.read()
        except StoreError:  # teammates read the board themselves when they wake
            return None
        return find_claimers(team, changed, before, self._tasks)

    def look_soon(self) -> None:
        """Have the next `release` look, since a process has ended and may have left mail unsent."""
        self._due_at = 0.0

    def release(self, team: Team) -> None:
        """Release the tasks of members that are gone, and send news that was left unsent."""
        gone = {member.name for member in team.members if not member.status.wants_process}
        if gone <= self._gone and time.monotonic() < self._due_at:
            self._gone = gone
            return
        self._gone = gone
        try:
            for task in self.board.release(gone_from(team)):
                self.journal.note("task released", task=task.id, reason=task.notes[-1])
            self.board.flush()
        except StoreError as error:  # a later look finds the tasks again
            self.journal.error("board not seen to", error)
            self._due_at = time.monotonic() + BOARD_PATIENCE_SECONDS
        else:
            self._due_at = time.monotonic() + SLOW_SECONDS
