"""The clocks, and what each measures. None of them is ever set, forward or back.

Moments that are written down for people are seconds since the epoch, and measure nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# macOS counts a suspend in CLOCK_MONOTONIC; where neither is so, this is the nearest there is.
_THROUGH_SUSPEND: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_WITHOUT_SUSPEND: Final = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def elapsed() -> float:
    """Seconds that have gone by for a person, a suspend included: delays, deadlines, windows.

    Of one boot, and the same for all its processes.
    """
    return time.clock_gettime(_THROUGH_SUSPEND)


def awake() -> float:
    """Seconds in which a process could have run: for judging it by how little it does.

    After a night's suspend nobody has been silent for a night, nor had one to end in.
    """
    return time.clock_gettime(_WITHOUT_SUSPEND)


def boot() -> str | None:
    """Names this boot of the machine, so that `elapsed` can be compared; `None` where unknown."""
    with suppress(OSError):  # not Linux, or no /proc
        return _BOOT.read_text(encoding="ascii").strip()
    return None


def time_of_day(moment: float) -> str:
    """Return a time of today as `17:05`, of another day with its date, in the reader's zone."""
    then, now = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment that comes, by one of the clocks."""

    at: float
    clock: Callable[[], float]

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = elapsed) -> Deadline:
        """So many seconds from now; may be infinite."""
        return cls(clock() + seconds, clock)

    @property
    def left(self) -> float:
        """Seconds until then; 0 or less once it has come."""
        return self.at - self.clock()
