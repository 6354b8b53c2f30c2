"""The concurrency limit of model calls: it goes down where the server refuses, and up again.

The scheme is additive increase with a decrease of one. As in TCP's congestion avoidance (Jacobson,
"Congestion Avoidance and Control", 1988) as many replies as there are slots make one more slot.
That decrease must be multiplicative for many senders to come to equal shares (Chiu and Jain,
"Analysis of the Increase and Decrease Algorithms", 1989). Here one queue shares out, so each call
that is refused takes away the one slot that was too many. A slot more that was refused at once
makes the next try come later, since the wall is known by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from teamd.clocks import Deadline
from teamd.models.retry import RetryPolicy

_LEAST_STEP: Final = 1 / 16


@dataclass(slots=True)
class ConcurrencyLimit:
    """The number of calls that may be under way, and how long none may begin.

    Attributes:
        most: returns how many the settings allow.
        policy: returns how long to wait where the server refuses.
    """

    most: Callable[[], int]
    policy: Callable[[], RetryPolicy]
    _limit: float = 1e9
    _step: float = 1.0  # of the way to one more slot, for as many replies as there are slots
    _grown: bool = False  # since the last refusal
    _refusals: int = 0  # in a row
    _last: int = -1  # number of the last call that was granted before the last refusal
    _pause: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    @property
    def now(self) -> int:
        """How many calls may be under way."""
        return int(min(self._limit, max(1, self.most())))

    @property
    def pause_seconds(self) -> float:
        """How long no call may begin; 0 for none."""
        return max(0.0, self._pause.left)

    def served(self) -> None:
        """Take note of a reply."""
        self._refusals = 0
        before = self.now
        self._limit = min(self._limit, max(1, self.most())) + self._step / before
        if self.now > before:
            self._step = min(1.0, 2 * self._step) if self._grown else self._step
            self._grown = True

    def refused(
        self, number: int, asked_seconds: float | None, *, last: int, under_way: int
    ) -> None:
        """Take note that the server refused a call for there being too many.

        Calls that were under way together may all be refused for one reason. So only a call that
        was granted since the last refusal tells that the wall still stands.

        Args:
            number: of the call.
            asked_seconds: how long the server asks to wait, if it does.
            last: the number of the last call that was granted.
            under_way: how many other calls are: so many the server takes. The end of one is the
                time for the next; where there is none, or that was refused, too, the clock tells.
        """
        self._limit = float(max(1, min(self.now - 1, under_way or self.now)))
        if number > self._last:
            self._step = max(_LEAST_STEP, self._step / 2)
            self._refusals, self._grown, self._last = self._refusals + 1, False, last
        if asked_seconds is not None or not under_way or self._refusals > 1:
            seconds = self.policy().seconds(max(0, self._refusals - 1), asked_seconds)
            self._pause = max(self._pause, Deadline.after(seconds), key=lambda one: one.at)
