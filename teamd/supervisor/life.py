"""One teammate's process over time: its state, its heartbeats, its crashes, and how it ended.

The restart limit is that of OTP's supervisors (`intensity` and `period`): more than so many crashes
in so much time, and another restart is of no use. The delay in between grows as with systemd's
`RestartSteps=`.
"""

from __future__ import annotations

import math
import signal
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from teamd import clocks
from teamd.errors import StoreError
from teamd.mail.mailbox import Mailbox
from teamd.states import ChildExit
from teamd.supervisor.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.clocks import Deadline
    from teamd.files.paths import TeamPaths
    from teamd.heartbeat import Heartbeat
    from teamd.journal import Journal
    from teamd.supervisor.fork import Child

FIRST_DELAY_SECONDS: Final = 0.1
LONGEST_DELAY_SECONDS: Final = 30.0
_MOST_DOUBLINGS: Final = 100  # far beyond the longest delay, and still a float
BEATS: Final = 4  # in the time that a process may be silent: a busy machine swallows some
LONGEST_BEAT_SECONDS: Final = 60.0
_MINUTE_SECONDS: Final = 60
# A supervisor that looks later than this was stopped itself, and maybe with all it watches (a
# container can be frozen): the silence that it finds proves nothing.
_LATE_SECONDS: Final = 5.0
# What a process does to itself. SIGKILL and SIGTERM come from outside: a person, a full memory.
_FATAL: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartLimit:
    """The number of crashes that are allowed (`intensity`) in how much time (`period`)."""

    intensity: int
    period_seconds: float


@dataclass(slots=True)
class Crashes:
    """The crashes of one teammate that still count."""

    _moments: deque[float] = field(default_factory=deque)

    def note(self, now: float, limit: RestartLimit) -> float | None:
        """Count one more.

        Args:
            now: in seconds, by a clock that is never set back.
            limit: how many are allowed.

        Returns:
            The seconds after which to start again; `None` to give up.
        """
        self._moments.append(now)
        while now - self._moments[0] > limit.period_seconds:
            self._moments.popleft()
        if len(self._moments) > limit.intensity:
            return None
        doublings = min(len(self._moments) - 1, _MOST_DOUBLINGS)
        grown: float = FIRST_DELAY_SECONDS * 2**doublings
        return min(grown, LONGEST_DELAY_SECONDS)

    def forgive(self) -> None:
        """Count none of them any more: a person has asked for another try."""
        self._moments.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatPolicy:
    """The time for which a process may miss heartbeats, and whether to restart it then.

    Attributes:
        seconds: how long it may be silent; 0: for ever.
        restart: whether a process that is silent for longer is killed, and so started again.
    """

    seconds: float
    restart: bool

    @property
    def beat_seconds(self) -> float:
        """The time between two heartbeats."""
        return min(self.seconds / BEATS or LONGEST_BEAT_SECONDS, LONGEST_BEAT_SECONDS)

    @property
    def violation(self) -> str:
        """The reason why a process counts as stuck."""
        if self.seconds < _MINUTE_SECONDS:
            return f"no progress for {self.seconds:g} s"
        return f"no progress for {self.seconds / _MINUTE_SECONDS:.3g} min"


class Watchdog:
    """The watchdog of one process. Moments are those of the clock `awake`."""

    def __init__(self, heartbeat: Heartbeat, policy: HeartbeatPolicy) -> None:
        self._heartbeat = heartbeat
        self._policy = policy
        self._rung_at: float | None = None  # while it rested
        self._excused_until = 0.0
        self._looked_at = 0.0

    def ring(self, now: float) -> None:
        """Expect a heartbeat from now on, also of a process that rests."""
        if self._rung_at is None:
            self._rung_at = now

    def due(self) -> float | None:
        """Return when the silence will be too long; `None` while the process may be silent."""
        heard = self._heartbeat.heard
        if self._rung_at is not None and heard > self._rung_at:
            self._rung_at = None
        if self._heartbeat.resting:
            if self._rung_at is None:
                return None
            heard = self._rung_at
        allowed = self._policy.seconds
        return max(heard, self._excused_until) + allowed if allowed else None

    def expired(self, now: float) -> bool:
        """Return whether the process has been silent for too long."""
        looked_at, self._looked_at = self._looked_at, now
        due = self.due()
        if due is None or now < due:
            return False
        if looked_at < due < now - _LATE_SECONDS:
            self._excused_until = now
            return False
        return True


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


def describe_exit(code: int) -> str:
    """Say why a process ended, by its exit code (negative: the signal)."""
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    if code == ChildExit.STOPPED:
        return "its process ended although nobody had asked for it"
    if code == ChildExit.IO:
        return "a file of its could not be read or written"
    return f"its process ended with exit code {code}"


def crashed_by_itself(code: int) -> bool:
    """Return whether an exit code proves that the process itself went wrong."""
    return code == ChildExit.CRASHED or -code in _FATAL


def blame_delivery(paths: TeamPaths, journal: Journal, name: str, pid: int, code: int) -> None:
    """Note in a teammate's mail that its process crashed with a delivery in hand.

    The note is evidence, no more: where it cannot be written, the message is delivered once more.
    """
    if not crashed_by_itself(code):
        return
    try:
        if Mailbox(paths, name, durable=False).blame(pid):
            journal.warn("crashed with mail in hand", name=name, pid=pid)
    except StoreError as error:
        journal.error("blame not noted", error, name=name, pid=pid)
