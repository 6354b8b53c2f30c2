"""One teammate's process over time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from teamd import clocks
from teamd.supervisor.lifecycle import State
from teamd.supervisor.restart_limit import Crashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.clocks import Deadline
    from teamd.supervisor.fork import Child
    from teamd.supervisor.watchdog import Watchdog


@dataclass(slots=True)
class Life:
    """The state of a teammate's process, and what is due."""

    name: str
    state: State = State.ABSENT
    child: Child | None = None
    watchdog: Watchdog | None = None
    due: Deadline | None = None  # to start again, or to use force
    again: bool = False  # whether to start again once it has ended
    begun_at: float = 0.0  # when its process was forked, by the clock `elapsed`
    hindrances: int = 0  # how often in a row its process soon ended for trouble with files
    crashes: Crashes = field(default_factory=Crashes)
    when_ended: list[Callable[[bool], None]] = field(default_factory=list)

    def forgive(self) -> None:
        """Count no earlier end any more: a person has asked for another try."""
        self.hindrances = 0
        self.crashes.forgive()

    def left(self, beat_seconds: float) -> float:
        """Return the seconds until something is to be done, or its silence will be too long."""
        left = math.inf if self.due is None else self.due.left
        if self.state is State.STUCK:  # only a look tells that it is heard again
            return min(left, beat_seconds)
        if self.watchdog is None or self.state is not State.RUNNING:
            return left
        too_long = self.watchdog.due()
        return left if too_long is None else min(left, too_long - clocks.awake())
