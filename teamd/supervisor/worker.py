"""A job beside the teammates that one process does at a time, such as a check or a merge."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from teamd import clocks
from teamd.clocks import Deadline
from teamd.errors import TeamError
from teamd.supervisor.children import TROUBLE_SECONDS, Children
from teamd.supervisor.fork import Child

LEAVE_SECONDS: Final = 2.0  # for a process to end by itself once its work is no longer wanted
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 30.0


@dataclass(slots=True, eq=False)
class Worker:
    """One job, done by one process at a time; between two processes there is a growing pause.

    Attributes:
        job: its name in the log; `check begins` and `check ended` are `LoggedEvent`s.
        children: the other processes, which must not keep descriptors of this one.
        facts: about the job, for the log.
    """

    job: str
    children: Children
    longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS
    facts: dict[str, str] = field(default_factory=dict)
    _child: Child | None = None
    _due: Deadline = field(default_factory=lambda: Deadline.after(math.inf))
    _pause_seconds: float = 0.0
    _pause: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.identity.pid

    @property
    def runs(self) -> bool:
        return self._child is not None

    @property
    def may_start(self) -> bool:
        return not self.runs and self._pause.left <= 0

    @property
    def next_due_seconds(self) -> float:
        """The seconds until the process is to be killed, or may be started."""
        return self._due.left if self.runs else self._pause.left

    def start(self, run: Callable[[], int], *, limit_seconds: float = math.inf) -> None:
        """Fork a process that exits with the result of `run`.

        Raises:
            OSError: there are no processes or descriptors left.
        """
        self._child = self.children.fork(lambda _: run())
        self.children.private.append(self._child.bell)
        self.kill_after(limit_seconds)
        self.children.journal.note(f"{self.job} begins", **self.facts, pid=self.pid)

    def try_start(
        self, run: Callable[[], int], *, limit_seconds: float = math.inf, load: bool = False
    ) -> bool:
        """Fork a process as `start` does, or pause; return whether it was forked.

        With `load`, load the modules that teammates need, too, so that the next fork has them.
        """
        try:
            if load:
                self.children.load()
            self.start(run, limit_seconds=limit_seconds)
        except (OSError, TeamError) as error:
            self.children.journal.error(f"{self.job} not forked", error, **self.facts)
            self._pause = Deadline.after(TROUBLE_SECONDS)
        return self.runs

    def reap(self) -> int | None:
        """Return the exit code of a process that has ended; `rest` comes next."""
        if self._child is None or (code := self._child.reap()) is None:
            return None
        self.children.journal.note(f"{self.job} ended", **self.facts, code=code, pid=self.pid)
        self.children.private.remove(self._child.bell)
        self._child = None
        return code

    def rest(self, *, progressed: bool, trouble: bool) -> None:
        """Begin the pause before the next process.

        Args:
            progressed: whether the process that ended did some work; then the pause is short.
            trouble: whether the machine has trouble, such as a full disk.
        """
        doubled = 0.0 if progressed else 2 * self._pause_seconds
        self._pause_seconds = min(max(doubled, _FIRST_PAUSE_SECONDS), self.longest_pause_seconds)
        seconds = max(self._pause_seconds, TROUBLE_SECONDS if trouble else 0.0)
        self._pause = Deadline.after(seconds)

    def end_pause(self) -> None:
        self._pause = Deadline.after(0.0)

    def kill_after(self, seconds: float) -> None:
        """Set the time after which `kill_overdue` kills the process."""
        self._due = Deadline.after(seconds, clocks.awake)

    def kill_within(self, seconds: float) -> None:
        """Have the process killed after this many seconds, or at the earlier time already set."""
        if self._due.left > seconds:
            self.kill_after(seconds)

    def kill_overdue(self) -> None:
        if self.runs and self._due.left <= 0:
            self.kill()
            self.kill_after(LEAVE_SECONDS)

    def kill(self) -> None:
        if self._child is not None:
            self._child.signal(signal.SIGKILL)
