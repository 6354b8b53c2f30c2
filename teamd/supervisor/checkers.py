"""The processes that check tasks: one for each claim, until it is judged.

What is to be checked stands on the board, and nothing of it here: whatever is killed, a later look
finds the claim again.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from teamd import clocks
from teamd.board.board import Board
from teamd.board.files import id_in
from teamd.board.task import TaskStatus
from teamd.clocks import Deadline
from teamd.errors import StoreError, TeamError
from teamd.files.watch import SLOW_SECONDS
from teamd.journal import Journal, LoggedEvent
from teamd.supervisor.children import Children
from teamd.supervisor.fork import CheckStart, Child, fork
from teamd.team.states import ChildExit

_AT_ONCE: Final = 1  # they share the workspace, and what one builds there is not another's
_AROUND_SECONDS: Final = 300.0  # to make a place, and to end: a process that hangs is killed
_LEAVE_SECONDS: Final = 2.0  # to clean up, once it has judged or nobody asks for that any more
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 30.0
_TROUBLE_SECONDS: Final = 5.0  # of the machine: a full disk, no processes left


@dataclass(slots=True)
class _Run:
    """A process that checks a claim, and when it has taken too long."""

    child: Child
    claim: str
    due: Deadline


@dataclass(slots=True)
class _Pause:
    """The time before a claim is checked again whose process ended without a judgement."""

    claim: str
    seconds: float
    due: Deadline


@dataclass(slots=True)
class Checkers:
    """Forks, watches and reaps the processes of checks.

    Attributes:
        board: to look at.
        children: the other processes, which keep no descriptor of these.
        check_seconds: returns how long a check may take by the settings in force.
    """

    board: Board
    children: Children
    check_seconds: Callable[[], float]
    journal: Journal
    closing: bool = False
    _claims: dict[str, str] = field(default_factory=dict)  # by the ids of tasks
    _runs: dict[str, _Run] = field(default_factory=dict)
    _pauses: dict[str, _Pause] = field(default_factory=dict)
    _next_look: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    def note(self, names: Iterable[str] | None) -> None:
        """Take note of tasks that have changed.

        Args:
            names: of the files that have changed, as a watch tells; `None` where only a look can.
        """
        if names is None:
            self._next_look = Deadline.after(0.0)
            return
        for task_id in filter(None, map(id_in, names)):
            self._note(task_id)

    def look(self) -> None:
        """Check what is claimed, and end what nobody claims any more."""
        if self._next_look.left <= 0:
            self._look_at_all()
        for task_id, run in self._runs.items():
            if self._claims.get(task_id) != run.claim and run.due.left > _LEAVE_SECONDS:
                run.due = Deadline.after(_LEAVE_SECONDS, clocks.awake)
            if run.due.left <= 0:
                run.child.signal(signal.SIGKILL)
                run.due = Deadline.after(_LEAVE_SECONDS, clocks.awake)
        for task_id, claim in list(self._claims.items()):
            if self.closing or len(self._runs) >= _AT_ONCE:
                return
            if task_id not in self._runs and self._pause_seconds(task_id, claim) <= 0:
                self._fork(task_id, claim)

    def reap(self) -> list[int]:
        """Take note of processes that have ended; return their exit codes."""
        codes = []
        for task_id, run in list(self._runs.items()):
            if (code := run.child.reap()) is not None:
                codes.append(code)
                self._end(task_id, run, code)
        return codes

    def kill_all(self) -> None:
        """Kill every process at once: what it checked is checked again, and counts for nothing."""
        for run in self._runs.values():
            run.child.signal(signal.SIGKILL)

    def close(self) -> None:
        """End all of them, and fork no more."""
        self.closing = True
        self.kill_all()

    def pids(self) -> set[int]:
        """Return the pids of all processes."""
        return {run.child.identity.pid for run in self._runs.values()}

    def next_due_seconds(self) -> float:
        """Return the seconds until `look` has something to do."""
        dues = [run.due.left for run in self._runs.values()]
        if not self.closing and len(self._runs) < _AT_ONCE:
            waiting = self._claims.items() - {(one, run.claim) for one, run in self._runs.items()}
            dues += [self._pause_seconds(*claim) for claim in waiting]
        return max(0.0, min(self._next_look.left, min(dues, default=math.inf)))

    def _look_at_all(self) -> None:
        try:
            found = self.board.read().by_id
        except StoreError as error:
            self.journal.error("claims not looked for", error)
            self._next_look = Deadline.after(_TROUBLE_SECONDS)
            return
        checking = (task for task in found.values() if task.status is TaskStatus.CHECKING)
        self._claims = {task.id: task.claim for task in checking}
        self._next_look = Deadline.after(SLOW_SECONDS)

    def _note(self, task_id: str) -> None:
        try:
            task = self.board.read_one(task_id)
        except StoreError:  # a look at all of them tells
            self._next_look = Deadline.after(0.0)
            return
        if task is not None and task.status is TaskStatus.CHECKING:
            self._claims[task_id] = task.claim
        else:
            self._claims.pop(task_id, None)

    def _pause_seconds(self, task_id: str, claim: str) -> float:
        pause = self._pauses.get(task_id)
        return pause.due.left if pause is not None and pause.claim == claim else 0.0

    def _fork(self, task_id: str, claim: str) -> None:
        start, children = CheckStart(task_id, claim), self.children
        try:
            children.load()
            child = fork(lambda _: children.program.check(start), close=children.descriptors())
        except (OSError, TeamError) as error:
            self.journal.error("no check forked", error, task=task_id)
            self._pauses[task_id] = _Pause(claim, 0.0, Deadline.after(_TROUBLE_SECONDS))
            return
        children.private.append(child.bell)
        seconds = self.check_seconds() + _AROUND_SECONDS
        self._runs[task_id] = _Run(child, claim, Deadline.after(seconds, clocks.awake))
        self.journal.note(LoggedEvent.CHECK_BEGAN, task=task_id, pid=child.identity.pid)

    def _end(self, task_id: str, run: _Run, code: int) -> None:
        del self._runs[task_id]
        self.children.private.remove(run.child.bell)
        self.journal.note(
            LoggedEvent.CHECK_ENDED, task=task_id, code=code, pid=run.child.identity.pid
        )
        self._note(task_id)
        if self._claims.get(task_id) != run.claim:
            self._pauses.pop(task_id, None)
            return
        before = self._pauses.get(task_id)
        seconds = before.seconds * 2 if before and before.claim == run.claim else 0.0
        seconds = min(max(seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        if code == ChildExit.IO:
            seconds = max(seconds, _TROUBLE_SECONDS)
        self._pauses[task_id] = _Pause(run.claim, seconds, Deadline.after(seconds))
