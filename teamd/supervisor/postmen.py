"""The process that talks to other hosts: one, for as long as `[hosts]` names this machine."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from teamd import clocks
from teamd.clocks import Deadline
from teamd.states import ChildExit
from teamd.supervisor.fork import fork

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from teamd.journal import Journal
    from teamd.settings.hosts import HostSettings
    from teamd.supervisor.children import Children
    from teamd.supervisor.fork import Child

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 30.0
_LASTING_SECONDS: Final = 60.0  # one that ran for so long is no crash loop
_TROUBLE_SECONDS: Final = 5.0  # of the machine: a full disk, no processes left


@dataclass(slots=True)
class Postmen:
    """Forks, watches and reaps the postman. A kill at any moment loses nothing.

    Attributes:
        children: the other processes, which keep no descriptor of this.
        settings: returns those of `[hosts]` in force.
    """

    children: Children
    settings: Callable[[], HostSettings]
    journal: Journal
    closing: bool = False
    _child: Child | None = None
    _running: HostSettings | None = None  # the settings that it was forked with
    _began: float = 0.0
    _pause_seconds: float = 0.0
    _pause: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    def note(self, names: Collection[str] | None) -> None:
        """Take note of files of the board: nothing here is about them."""

    def look(self) -> None:
        """Fork it where it is wanted; end it where its settings are not those in force."""
        settings = self.settings()
        if self._child is not None:
            if settings != self._running:
                self._child.signal(signal.SIGKILL)
                self._pause_seconds = 0.0
        elif settings.name is not None and not self.closing and self._pause.left <= 0:
            self._fork(settings)

    def reap(self) -> list[int]:
        """Take note of its end; return its exit code."""
        if self._child is None or (code := self._child.reap()) is None:
            return []
        self.journal.note("postman ended", code=code, pid=self._child.identity.pid)
        self.children.private.remove(self._child.bell)
        changed = self.settings() != self._running
        if changed or clocks.awake() - self._began > _LASTING_SECONDS:
            self._pause_seconds = 0.0
        self._child, self._running = None, None
        trouble = _TROUBLE_SECONDS if code in (ChildExit.IO, ChildExit.SETTINGS) else 0.0
        self._pause = Deadline.after(max(self._pause_seconds, trouble))
        self._pause_seconds = min(
            max(2 * self._pause_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS
        )
        return [code]

    def kill_all(self) -> None:
        """Kill it at once."""
        if self._child is not None:
            self._child.signal(signal.SIGKILL)

    def close(self) -> None:
        """End it, and fork no more: what teammates still send waits in the outboxes."""
        self.closing = True
        self.kill_all()

    def pids(self) -> set[int]:
        """Return its pid."""
        return set() if self._child is None else {self._child.identity.pid}

    def next_due_seconds(self) -> float:
        """Return the seconds until `look` has something to do."""
        wanted = self._child is None and not self.closing and self.settings().name is not None
        return max(0.0, self._pause.left) if wanted else math.inf

    def _fork(self, settings: HostSettings) -> None:
        children = self.children
        try:
            # Nothing is loaded for it: it is a program of its own.
            self._child = fork(lambda _: children.program.post(), close=children.descriptors())
        except OSError as error:
            self.journal.error("no postman forked", error)
            self._pause = Deadline.after(_TROUBLE_SECONDS)
            return
        self._running, self._began = settings, clocks.awake()
        children.private.append(self._child.bell)
        self.journal.note("postman begins", pid=self._child.identity.pid)
