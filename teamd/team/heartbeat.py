"""A process's heartbeat, and the watchdog by which its supervisor detects that it hangs.

The heartbeat is a number in memory that both share. It needs no system call, wakes no process, and
is readable even while the process hangs.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Final

from teamd import clocks

BEATS: Final = 4  # within the allowed silence, because a busy machine misses some
LONGEST_BEAT_SECONDS: Final = 60.0
_MINUTE_SECONDS: Final = 60
# A supervisor that looks later than this was stopped itself, perhaps with all its processes (a
# container can be frozen). Then the silence proves nothing.
_LATE_SECONDS: Final = 5.0


class Heartbeat:
    """The time of a process's last heartbeat, and whether the process has work.

    It is made before the fork; the child writes and the parent reads.
    """

    def __init__(self) -> None:
        # Each access is one instruction. `struct.pack_into` would clear the bytes first, and a
        # concurrent reader would see a process that was silent since the boot.
        self._cell = memoryview(mmap.mmap(-1, 8)).cast("d")
        self.beat()

    def beat(self) -> None:
        """Report that the process is working."""
        self._cell[0] = clocks.awake()

    def rest(self) -> None:
        """Report that the process waits for mail: until mail comes, silence is not a fault."""
        self._cell[0] = -clocks.awake()

    @property
    def resting(self) -> bool:
        """Whether the process last reported that it waits."""
        return self._cell[0] < 0

    @property
    def heard(self) -> float:
        """The time of the last heartbeat, by the clock `awake`."""
        return abs(self._cell[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatPolicy:
    """How long a process may miss heartbeats, and whether it is restarted after that.

    Attributes:
        seconds: how long it may be silent; 0 means forever.
        restart: whether a process that is silent for longer is killed and so restarted.
    """

    seconds: float
    restart: bool

    @property
    def beat_seconds(self) -> float:
        """The interval between two heartbeats."""
        return min(self.seconds / BEATS or LONGEST_BEAT_SECONDS, LONGEST_BEAT_SECONDS)

    @property
    def violation(self) -> str:
        """The reason to show for a stuck process."""
        if self.seconds < _MINUTE_SECONDS:
            return f"no progress for {self.seconds:g} s"
        return f"no progress for {self.seconds / _MINUTE_SECONDS:.3g} min"


@dataclass(slots=True)
class Watchdog:
    """The watchdog of one process. Times are those of the clock `awake`."""

    heartbeat: Heartbeat
    policy: HeartbeatPolicy
    _rung_at: float | None = None  # while the process was idle
    _excused_until: float = 0.0
    _looked_at: float = 0.0

    def ring(self, now: float) -> None:
        """Expect a heartbeat from now on, even from an idle process."""
        # If an unanswered ring is pending, its time counts.
        if self._rung_at is None or self.heartbeat.heard > self._rung_at:
            self._rung_at = now

    def due(self) -> float | None:
        """Return when the silence will be too long; `None` while the process may be silent."""
        heard = self.heartbeat.heard
        if self._rung_at is not None and heard > self._rung_at:
            self._rung_at = None
        if self.heartbeat.resting:
            if self._rung_at is None:
                return None
            heard = self._rung_at
        allowed = self.policy.seconds
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
