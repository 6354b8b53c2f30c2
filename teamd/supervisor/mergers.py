"""The process that empties the merge queue: one at a time, while something waits in it.

What waits stands in the queue's file, and nothing of it here: whatever is killed, a later look
finds it again.
"""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from teamd import clocks
from teamd.clocks import Deadline
from teamd.errors import StoreError
from teamd.files.watch import SLOW_SECONDS
from teamd.merges import queue
from teamd.merges.entry import Entries, MergeState
from teamd.states import ChildExit
from teamd.supervisor.fork import fork

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from teamd.files.paths import TeamPaths
    from teamd.journal import Journal
    from teamd.supervisor.children import Children
    from teamd.supervisor.fork import Child

_AROUND_SECONDS: Final = 900.0  # to merge and to move the branch: a process that hangs is killed
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0  # whoever cleans a working tree tells nobody
_TROUBLE_SECONDS: Final = 5.0  # of the machine: a full disk, no processes left


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
    closing: bool = False
    _there: Entries = field(default_factory=Entries)
    _child: Child | None = None
    _at: str = ""  # the entry that is being checked
    _due: Deadline = field(default_factory=lambda: Deadline.after(0.0, clocks.awake))
    _pause_seconds: float = 0.0
    _pause: Deadline = field(default_factory=lambda: Deadline.after(0.0))
    _behind: bool = True  # something may be left of a process that was killed, mail not told even
    _next_look: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    def note(self, names: Collection[str] | None) -> None:
        """Take note of files of the board's folder that have changed."""
        if names is None or self.paths.queue.name in names:
            self._next_look = Deadline.after(0.0)
        elif names and self._there.open:  # what waits for its task may go on
            self._pause = Deadline.after(0.0)

    def look(self) -> None:
        """Merge what waits, and end the process whose entry was taken out, or that hangs."""
        if self._next_look.left <= 0:
            self._read()
        if self._child is not None:
            if self._due.left <= 0:
                self._child.signal(signal.SIGKILL)
            return
        if self._wanted and self._pause.left <= 0:
            self._fork()

    def reap(self) -> list[int]:
        """Take note of the end of the process; return its exit code."""
        if self._child is None or (code := self._child.reap()) is None:
            return []
        self.journal.note("merging ended", code=code, pid=self._child.identity.pid)
        self.children.private.remove(self._child.bell)
        self._child, self._at = None, ""
        self._behind = code != ChildExit.STOPPED
        before = self._there
        self._read()
        if before.all != self._there.all:
            self._pause_seconds = 0.0
        self._pause_seconds = min(
            max(2 * self._pause_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS
        )
        trouble = _TROUBLE_SECONDS if code == ChildExit.IO else 0.0
        self._pause = Deadline.after(max(self._pause_seconds, trouble))
        return [code]

    def kill_all(self) -> None:
        """Kill it at once: what it checked is checked again."""
        if self._child is not None:
            self._child.signal(signal.SIGKILL)

    def close(self) -> None:
        """End it, and fork no more."""
        self.closing = True
        self.kill_all()

    def pids(self) -> set[int]:
        """Return its pid."""
        return set() if self._child is None else {self._child.identity.pid}

    def next_due_seconds(self) -> float:
        """Return the seconds until `look` has something to do."""
        due = math.inf
        if self._child is not None:
            due = self._due.left
        elif self._wanted:
            due = self._pause.left
        return max(0.0, min(self._next_look.left, due))

    @property
    def _wanted(self) -> bool:
        """Return whether there is work for a process."""
        if self.closing:
            return False
        return bool(self._there.open) or (self._behind and self.paths.queue.exists())

    def _read(self) -> None:
        try:
            self._there = queue.read(self.paths)
        except StoreError as error:
            self.journal.error("queue not read", error)
            self._next_look = Deadline.after(_TROUBLE_SECONDS)
            return
        self._next_look = Deadline.after(SLOW_SECONDS)
        checking = (one.id for one in self._there.open if one.state is MergeState.CHECKING)
        at = next(checking, "")
        if self._child is not None and self._at and self._there.find(self._at) is None:
            self._due = Deadline.after(0.0, clocks.awake)  # somebody has taken it out
        elif at and at != self._at:
            self._renew()
        self._at = at

    def _renew(self) -> None:
        self._due = Deadline.after(self.check_seconds() + _AROUND_SECONDS, clocks.awake)

    def _fork(self) -> None:
        children = self.children
        try:
            children.program.load()
            self._child = fork(lambda _: children.program.merge(), close=children.descriptors())
        except OSError as error:
            self.journal.error("no merge forked", error)
            self._pause = Deadline.after(_TROUBLE_SECONDS)
            return
        children.private.append(self._child.bell)
        self._renew()
        self.journal.note("merging begins", pid=self._child.identity.pid)
