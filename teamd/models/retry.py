"""The retry policy: bounded, with exponential backoff with full jitter.

The scheme is that of "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): a random
time up to a bound that doubles, so that teammates that failed together do not return together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from teamd.models import LONG_WAIT_SECONDS

_LONGEST_REST_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The bounds within which a request is tried again.

    Attributes:
        attempts: calls in all, the first included.
        first_seconds: bound of the first pause; it doubles with each.
        longest_seconds: the bound stops growing here; a server's `retry-after` is cut to it too.
        rest_seconds: after the last attempt, when to begin again. The rests after refusals of the
            account begin with it and grow.
    """

    attempts: int = 10
    first_seconds: float = 0.5
    longest_seconds: float = 60.0
    rest_seconds: float = 300.0

    def seconds(self, attempt: int, asked_seconds: float | None) -> float:
        """Return the seconds to wait after a failed attempt: the server's wish plus a random time.

        Args:
            attempt: its number, counted from 0.
            asked_seconds: the server's wish.
        """
        asked = min(asked_seconds or 0.0, self.longest_seconds)
        bound = min(self.first_seconds * 2 ** min(attempt, 64), self.longest_seconds)
        return asked + random.uniform(0, bound)  # noqa: S311 -- spreads load, guards nothing

    def rest(self, before: int, asked_seconds: float | None = None) -> float:
        """Seconds until an account that was refused is tried again.

        Args:
            before: how many such rests came before it, without a reply in between.
            asked_seconds: the server's wish. After the first rest only a long wait counts, or a
                server with a wrong clock would be asked without end.
        """
        if asked_seconds and (before == 0 or asked_seconds > LONG_WAIT_SECONDS):
            return asked_seconds
        grown = min(self.rest_seconds * 2.0 ** min(before, 64), _LONGEST_REST_SECONDS)
        return max(self.rest_seconds, grown)
