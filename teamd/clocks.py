"""Monotonic clocks: setting the time of day does not change them.

Times of day, in seconds since the epoch, are only shown to people and never measure a duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# On Linux CLOCK_MONOTONIC excludes suspend, on macOS it includes it. Other systems get plain
# CLOCK_MONOTONIC.
_THROUGH_SUSPEND: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_WITHOUT_SUSPEND: Final = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def elapsed() -> float:
    """Return seconds of real time, including suspend: for delays, deadlines and windows.

    Values are comparable between all processes of one boot.
    """
    return time.clock_gettime(_THROUGH_SUSPEND)


def awake() -> float:
    """Return seconds in which processes could run, excluding suspend: for detecting hung processes.

    After the machine was suspended overnight, no process counts as silent for that night.
    """
    return time.clock_gettime(_WITHOUT_SUSPEND)


def boot() -> str | None:
    """Return this boot's id, by which stored `elapsed` values are compared; `None` if unknown."""
    with suppress(OSError):  # not Linux, or no /proc
        return _BOOT.read_text(encoding="ascii").strip()
    return None


def time_of_day(moment: float) -> str:
    """Format a moment in local time: `17:05` if it is today, otherwise with the date."""
    then, now = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A future moment on one of the clocks."""

    at: float
    clock: Callable[[], float]

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = elapsed) -> Deadline:
        """Return a deadline this many seconds from now; `seconds` may be infinite."""
        return cls(clock() + seconds, clock)

    @property
    def left(self) -> float:
        """The seconds that remain; 0 or less once the deadline has passed."""
        return self.at - self.clock()
