"""A watchdog for each process: it tells when heartbeats have been missing for too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from teamd.heartbeat import Heartbeat

BEATS: Final = 4  # in the time that a process may be silent: a busy machine swallows some
LONGEST_BEAT_SECONDS: Final = 60.0
_MINUTE_SECONDS: Final = 60
# A supervisor that looks later than this was stopped itself, and maybe with all it watches (a
# container can be frozen): the silence that it finds proves nothing.
_LATE_SECONDS: Final = 5.0


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
