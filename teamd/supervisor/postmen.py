"""The process that talks to other hosts: one, for as long as `[hosts]` names this host."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from teamd import clocks
from teamd.journal import Journal
from teamd.settings.schema import HostSettings
from teamd.supervisor.children import Children
from teamd.supervisor.single_process import SingleProcess
from teamd.team.states import ChildExit

_LONGEST_PAUSE_SECONDS: Final = 30.0
_LASTING_SECONDS: Final = 60.0  # one that ran for so long is no crash loop


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
    _process: SingleProcess = field(init=False)
    _running: HostSettings | None = None  # the settings that it was forked with
    _began: float = 0.0

    def __post_init__(self) -> None:
        self._process = SingleProcess(
            "postman", self.children, self.journal, _LONGEST_PAUSE_SECONDS
        )

    def note(self, names: Collection[str] | None) -> None:
        """Take note of files of the board: nothing here is about them."""

    def look(self) -> None:
        """Fork it where it is wanted; end it where its settings are not those in force."""
        settings = self.settings()
        if self._process.runs:
            if settings != self._running:
                self._process.kill()
        elif (
            settings.name is not None
            and self._process.may_begin
            and self._process.fork(self.children.program.post)  # a program of its own: no load
        ):
            self._running, self._began = settings, clocks.awake()

    def reap(self) -> list[int]:
        """Take note of its end; return its exit code."""
        if (code := self._process.reap()) is None:
            return []
        changed = self.settings() != self._running
        self._process.rest(
            anew=changed or clocks.awake() - self._began > _LASTING_SECONDS,
            trouble=code in (ChildExit.IO, ChildExit.SETTINGS),
        )
        return [code]

    def kill_all(self) -> None:
        """Kill it at once."""
        self._process.kill()

    def close(self) -> None:
        """End it, and fork no more: what teammates still send waits in the outboxes."""
        self._process.close()

    def pids(self) -> set[int]:
        """Return its pid."""
        return self._process.pids()

    def next_due_seconds(self) -> float:
        """Return the seconds until `look` has something to do."""
        process = self._process
        wanted = not (process.runs or process.closing) and self.settings().name is not None
        return max(0.0, process.pause_seconds) if wanted else math.inf
