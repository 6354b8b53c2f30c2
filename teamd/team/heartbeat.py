"""A process's heartbeat, and the watchdog by which its supervisor notices that it hangs.

The heartbeat is a number in memory that both share. It costs no system call, wakes nobody, and is
readable whatever the process hangs in.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Final

from teamd import clocks

BEATS: Final = 4  # in the time that a process may be silent: a busy machine swallows some
LONGEST_BEAT_SECONDS: Final = 60.0
_MINUTE_SECONDS: Final = 60
# A supervisor that looks later than this was stopped itself, and maybe with all it watches (a
# container can be frozen): the silence that it finds proves nothing.
_LATE_SECONDS: Final = 5.0


class Heartbeat:
    """The moment of a process's last heartbeat, and whether it has anything to do.

    Made before the fork; the child writes, the parent reads.

    Args:
        cell: eight aligned bytes of shared memory, as one number; memory of its own otherwise.
    """

    def __init__(self, cell: memoryview[float] | None = None) -> None:
        # Stored and loaded by one instruction each. `struct.pack_into` would clear the bytes first,
        # and who reads in between would see a process silent since the boot.
        self._cell = memoryview(mmap.mmap(-1, 8)).cast("d") if cell is None else cell
        self.beat()

    def beat(self) -> None:
        """Show that the process works and is alive."""
        self._cell[0] = clocks.awake()

    def rest(self) -> None:
        """Show that the process waits for mail: until some comes, silence means nothing."""
        self._cell[0] = -clocks.awake()

    @property
    def resting(self) -> bool:
        """Return whether the process said last that it waits."""
        return self._cell[0] < 0

    @property
    def heard(self) -> float:
        """The moment of the last heartbeat, by the clock `awake`."""
        return abs(self._cell[0])


class HeartbeatMemory:
    """Memory for the heartbeats of many processes: a mapping for each is one more at every fork."""

    def __init__(self) -> None:
        self._free: list[memoryview[float]] = []

    def make(self) -> Heartbeat:
        """Make one more."""
        if not self._free:
            cells = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
            self._free = [cells[number : number + 1] for number in range(len(cells))]
        return Heartbeat(self._free.pop())


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


@dataclass(slots=True)
class Watchdog:
    """The watchdog of one process. Moments are those of the clock `awake`."""

    heartbeat: Heartbeat
    policy: HeartbeatPolicy
    _rung_at: float | None = None  # while it rested
    _excused_until: float = 0.0
    _looked_at: float = 0.0

    def ring(self, now: float) -> None:
        """Expect a heartbeat from now on, also of a process that rests."""
        if self._rung_at is None or self.heartbeat.heard > self._rung_at:  # an earlier was heard
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
