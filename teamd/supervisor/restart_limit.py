"""The restart limit: stops a crash loop, and delays each restart for longer than the last.

It is that of OTP's supervisors (`crashes` is their `intensity`, `within_seconds` their `period`):
more than so many crashes in so much time, and another restart is of no use. The delay in between
grows as with systemd's `RestartSteps=`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from teamd.settings.schema import Supervision

FIRST_DELAY_SECONDS: Final = 0.1
LONGEST_DELAY_SECONDS: Final = 30.0
_MOST_DOUBLINGS: Final = 100  # far beyond the longest delay, and still a float


@dataclass(slots=True)
class Crashes:
    """The crashes of one teammate that still count."""

    _moments: deque[float] = field(default_factory=deque)

    def note(self, now: float, limit: Supervision) -> float | None:
        """Count one more.

        Args:
            now: in seconds, by a clock that is never set back.
            limit: how many are allowed in how much time.

        Returns:
            The seconds after which to start again; `None` to give up.
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
        """Count none of them any more: a person has asked for another try."""
        self._moments.clear()
