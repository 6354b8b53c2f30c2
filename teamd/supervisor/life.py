"""One teammate's process over time, and in which words it is told of."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from teamd import clocks
from teamd.states import ChildExit
from teamd.supervisor.lifecycle import State
from teamd.supervisor.restarts import Crashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.clocks import Deadline
    from teamd.identity import Identity
    from teamd.supervisor.child import Child
    from teamd.supervisor.vigil import Silence, Vigil

_MINUTE_SECONDS = 60


class Register(Protocol):
    """Where it is written down how the teammates are."""

    def awaited(self, name: str) -> None:
        """A teammate is about to have a process; whatever it had before is gone."""

    def begun(self, name: str, process: Identity) -> None:
        """A teammate has a process now."""

    def ended(self, name: str) -> None:
        """A teammate has no process any more, as was wanted."""

    def crashed(self, name: str, reason: str) -> None:
        """A teammate has no process for a moment, and is started again."""

    def hindered(self, name: str, reason: str) -> None:
        """A teammate cannot go on for trouble with its files, and is tried again and again."""

    def failed(self, name: str, reason: str) -> None:
        """A teammate has crashed too often, or for good, and is given up."""

    def stuck(self, name: str, reason: str, *, restart: bool) -> None:
        """A teammate's process shows no sign of life, and is ended now or left to a person."""

    def relieved(self, name: str) -> None:
        """It does so again."""


@dataclass(slots=True)
class Life:
    """One teammate's process over time.

    Attributes:
        due: when to start again, or to use force.
        again: whether it is started again once it has ended.
        begun_at: when its process was forked, by the clock `elapsed`.
        hindrances: how often in a row its process soon ended for trouble with files.
    """

    name: str
    state: State = State.ABSENT
    child: Child | None = None
    vigil: Vigil | None = None
    due: Deadline | None = None
    again: bool = False
    begun_at: float = 0.0
    hindrances: int = 0
    crashes: Crashes = field(default_factory=Crashes)
    when_ended: list[Callable[[bool], None]] = field(default_factory=list)

    def forgive(self) -> None:
        """Count no earlier end any more: a person has asked for another try."""
        self.hindrances = 0
        self.crashes.forgive()

    def left(self, silence: Silence) -> float:
        """Seconds until something is to be done, or its silence will be too long."""
        left = math.inf if self.due is None else self.due.left
        if self.state is State.STUCK:  # nothing tells that it is heard again, but a look
            return min(left, silence.beat_seconds)
        if self.vigil is None or self.state is not State.RUNNING:
            return left
        too_long = self.vigil.due(silence)
        return left if too_long is None else min(left, too_long - clocks.awake())


def no_progress(seconds: float) -> str:
    """Why somebody is stuck."""
    if seconds < _MINUTE_SECONDS:
        return f"no progress for {seconds:g} s"
    return f"no progress for {seconds / _MINUTE_SECONDS:.3g} min"


def how_it_ended(code: int) -> str:
    """Why somebody has no process any more."""
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    if code == ChildExit.STOPPED:
        return "its process ended although nobody had asked for it"
    if code == ChildExit.IO:
        return "a file of its could not be read or written"
    return f"its process ended with exit code {code}"
