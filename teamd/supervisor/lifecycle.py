"""The life cycle of a teammate's process as a table of states and events, and its current state."""

from __future__ import annotations

import math
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from teamd import clocks
from teamd.clocks import Deadline
from teamd.process_id import Identity
from teamd.settings.schema import Supervision
from teamd.supervisor.fork import Child
from teamd.team.heartbeat import Heartbeat, Watchdog
from teamd.team.states import ChildExit

FIRST_DELAY_SECONDS: Final = 0.1
LONGEST_DELAY_SECONDS: Final = 30.0
_MOST_DOUBLINGS: Final = 100  # far beyond the longest delay, and still a float


@dataclass(slots=True)
class RestartCounter:
    """Counts the recent crashes of one teammate."""

    _moments: deque[float] = field(default_factory=deque)

    def note(self, now: float, limit: Supervision) -> float | None:
        """Count a crash.

        Args:
            now: in seconds, by a clock that is never set back.
            limit: how many crashes are allowed, and in how many seconds.

        Returns:
            The seconds after which to restart; `None` to give up.
        """
        self._moments.append(now)
        while now - self._moments[0] > limit.within_seconds:
            self._moments.popleft()
        if len(self._moments) > limit.crashes:
            return None
        doublings = min(len(self._moments) - 1, _MOST_DOUBLINGS)
        grown: float = FIRST_DELAY_SECONDS * 2**doublings
        return min(grown, LONGEST_DELAY_SECONDS)

    def forgive(self) -> None:
        """Forget all crashes: a person has asked for another try."""
        self._moments.clear()


EndNotice = Callable[[bool], None]  # gets whether the process was killed


class State(Enum):
    """The state of a teammate's process."""

    ABSENT = auto()
    RUNNING = auto()
    STUCK = auto()  # it runs without heartbeats
    WAITING = auto()  # it crashed, and restarts after a delay
    STOPPING = auto()
    KILLED = auto()


class LifeEvent(Enum):
    """The events of its life."""

    WANTED = auto()
    UNWANTED = auto()
    DUE = auto()  # the time to restart or to kill has come
    CRASHED = auto()  # it ended unexpectedly, or could not be forked
    HOPELESS = auto()  # the same, and another try would end alike
    SILENT = auto()  # it has something to do, and has shown no sign of life for too long
    HEARD = auto()  # it shows signs of life, or has nothing to do
    HIBERNATED = auto()  # it ended to go on in a process that has loaded nothing yet


class Action(Enum):
    """The supervisor's answer to an event."""

    NOTHING = auto()
    FORK = auto()
    HIBERNATE = auto()  # fork one that waits to be woken before it loads anything
    DELAY = auto()
    TERMINATE = auto()
    KILL = auto()
    SETTLE = auto()
    FAIL = auto()
    REPORT = auto()  # say that it is stuck; settings may want its end, which then is due at once
    RELIEVE = auto()  # report that it has recovered


# Events that are not listed for a state change nothing.
_STEPS: Final[dict[tuple[State, LifeEvent], tuple[State, Action]]] = {
    (State.ABSENT, LifeEvent.WANTED): (State.RUNNING, Action.FORK),
    (State.ABSENT, LifeEvent.UNWANTED): (State.ABSENT, Action.SETTLE),
    (State.RUNNING, LifeEvent.UNWANTED): (State.STOPPING, Action.TERMINATE),
    (State.RUNNING, LifeEvent.CRASHED): (State.WAITING, Action.DELAY),
    (State.RUNNING, LifeEvent.HOPELESS): (State.ABSENT, Action.FAIL),
    (State.RUNNING, LifeEvent.SILENT): (State.STUCK, Action.REPORT),
    (State.RUNNING, LifeEvent.HIBERNATED): (State.RUNNING, Action.HIBERNATE),
    (State.STUCK, LifeEvent.UNWANTED): (State.STOPPING, Action.TERMINATE),
    (State.STUCK, LifeEvent.DUE): (State.STUCK, Action.KILL),
    (State.STUCK, LifeEvent.CRASHED): (State.WAITING, Action.DELAY),
    (State.STUCK, LifeEvent.HOPELESS): (State.ABSENT, Action.FAIL),
    (State.STUCK, LifeEvent.HEARD): (State.RUNNING, Action.RELIEVE),
    (State.STUCK, LifeEvent.HIBERNATED): (State.RUNNING, Action.HIBERNATE),
    (State.WAITING, LifeEvent.WANTED): (State.RUNNING, Action.FORK),
    (State.WAITING, LifeEvent.UNWANTED): (State.ABSENT, Action.SETTLE),
    (State.WAITING, LifeEvent.DUE): (State.RUNNING, Action.FORK),
    (State.STOPPING, LifeEvent.DUE): (State.KILLED, Action.KILL),
    (State.STOPPING, LifeEvent.CRASHED): (State.ABSENT, Action.SETTLE),
    (State.STOPPING, LifeEvent.HOPELESS): (State.ABSENT, Action.SETTLE),
    (State.STOPPING, LifeEvent.HIBERNATED): (State.ABSENT, Action.SETTLE),
    (State.KILLED, LifeEvent.DUE): (State.KILLED, Action.KILL),
    (State.KILLED, LifeEvent.CRASHED): (State.ABSENT, Action.SETTLE),
    (State.KILLED, LifeEvent.HOPELESS): (State.ABSENT, Action.SETTLE),
    (State.KILLED, LifeEvent.HIBERNATED): (State.ABSENT, Action.SETTLE),
}


def next_step(state: State, event: LifeEvent) -> tuple[State, Action]:
    """Return the next state, and the action to take."""
    return _STEPS.get((state, event), (state, Action.NOTHING))


@dataclass(slots=True)
class Life:
    """The state of a teammate's process, and its next deadline."""

    name: str
    state: State = State.ABSENT
    child: Child | None = None
    former: Identity | None = None  # the process before it hibernated
    heartbeat: Heartbeat | None = None  # shared by all its processes
    watchdog: Watchdog | None = None
    due: Deadline | None = None  # to restart or to kill
    again: bool = False  # whether to restart once it has ended
    begun_at: float = 0.0  # when its process was forked, by the clock `elapsed`
    hindrances: int = 0  # how often in a row its process soon ended because of file errors
    crashes: RestartCounter = field(default_factory=RestartCounter)
    when_ended: list[EndNotice] = field(default_factory=list)

    def forgive(self) -> None:
        """Forget earlier ends: a person has asked for another try."""
        self.hindrances = 0
        self.crashes.forgive()

    def left(self, beat_seconds: float) -> float:
        """Return the seconds until its deadline, or until its heartbeat is overdue."""
        left = math.inf if self.due is None else self.due.left
        if self.state is State.STUCK:  # check whether its heartbeats come back
            return min(left, beat_seconds)
        if self.watchdog is None or self.state is not State.RUNNING:
            return left
        too_long = self.watchdog.due()
        return left if too_long is None else min(left, too_long - clocks.awake())


def describe_exit(code: int) -> str:
    """Return a clause that explains an exit code (negative: the signal)."""
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    if code == ChildExit.STOPPED:
        return "its process ended without a request"
    if code == ChildExit.IO:
        return "one of its files could not be read or written"
    return f"its process ended with exit code {code}"
