"""The process that empties the merge queue: one at a time, while something waits in it.

What waits stands in the queue's file, and nothing of it here: whatever is killed, a later look
finds it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from teamd import clocks
from teamd.clocks import Deadline
from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.files.watch import SLOW_SECONDS
from teamd.journal import Journal
from teamd.merges import queue
from teamd.merges.queue import Entries, MergeState
from teamd.supervisor.children import Children
from teamd.supervisor.single_process import TROUBLE_SECONDS, SingleProcess
from teamd.team.states import ChildExit

_AROUND_SECONDS: Final = 900.0  # to merge and to move the branch: a process that hangs is killed
_LONGEST_PAUSE_SECONDS: Final = 5.0  # whoever cleans a working tree tells nobody


@dataclass(slots=True)
class Mergers:
    """Forks, watches and reaps the process that merges.

    Attributes:
        children: the other processes, which keep no descriptor of this.
        check_seconds: returns how long a check may take by the settings in force.
    """

    paths: TeamPaths
    children: Children
    check_seconds: Callable[[], float]
    journal: Journal
    _process: SingleProcess = field(init=False)
    _there: Entries = field(default_factory=Entries)
    _at: str = ""  # the entry that is being checked
    _due: Deadline = field(default_factory=lambda: Deadline.after(0.0, clocks.awake))
    _behind: bool = True  # something may be left of a process that was killed, mail not told even
    _next_look: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    def __post_init__(self) -> None:
        self._process = SingleProcess(
            "merging", self.children, self.journal, _LONGEST_PAUSE_SECONDS
        )

    def note(self, names: Collection[str] | None) -> None:
        """Take note of files of the board's folder that have changed."""
        if names is None or self.paths.queue.name in names:
            self._next_look = Deadline.after(0.0)
        elif names and self._there.open:  # what waits for its task may go on
            self._process.hurry()

    def look(self) -> None:
        """Merge what waits, and end the process whose entry was taken out, or that hangs."""
        if self._next_look.left <= 0:
            self._read()
        if self._process.runs:
            if self._due.left <= 0:
                self._process.kill()
        elif self._wanted and self._process.may_begin:
            merge, load = self.children.program.merge, self.children.load
            if self._process.fork(merge, load=load):
                self._renew()

    def reap(self) -> list[int]:
        """Take note of the end of the process; return its exit code."""
        if (code := self._process.reap()) is None:
            return []
        self._at = ""
        self._behind = code != ChildExit.STOPPED
        before = self._there
        self._read()
        self._process.rest(anew=before.all != self._there.all, trouble=code == ChildExit.IO)
        return [code]

    def kill_all(self) -> None:
        """Kill it at once: what it checked is checked again."""
        self._process.kill()

    def close(self) -> None:
        """End it, and fork no more."""
        self._process.close()

    def pids(self) -> set[int]:
        """Return its pid."""
        return self._process.pids()

    def next_due_seconds(self) -> float:
        """Return the seconds until `look` has something to do."""
        due = math.inf
        if self._process.runs:
            due = self._due.left
        elif self._wanted:
            due = self._process.pause_seconds
        return max(0.0, min(self._next_look.left, due))

    @property
    def _wanted(self) -> bool:
        """Return whether there is work for a process."""
        if self._process.closing:
            return False
        return bool(self._there.open) or (self._behind and self._there.last > 0)

    def _read(self) -> None:
        try:
            self._there = queue.read(self.paths)
        except StoreError as error:
            self.journal.error("queue not read", error)
            self._next_look = Deadline.after(TROUBLE_SECONDS)
            return
        self._next_look = Deadline.after(SLOW_SECONDS)
        checking = (one.id for one in self._there.open if one.state is MergeState.CHECKING)
        at = next(checking, "")
        if self._process.runs and self._at and self._there.find(self._at) is None:
            self._due = Deadline.after(0.0, clocks.awake)  # somebody has taken it out
        elif at and at != self._at:
            self._renew()
        self._at = at

    def _renew(self) -> None:
        self._due = Deadline.after(self.check_seconds() + _AROUND_SECONDS, clocks.awake)
