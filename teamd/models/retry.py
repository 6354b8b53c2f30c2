"""The retry policy: bounded, with exponential backoff with full jitter.

The scheme is that of "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): a random
time up to a bound that doubles, so that teammates that failed together do not return together.
"""

from __future__ import annotations

from dataclasses import dataclass

from teamd.models import OddReplyError, RefusedError, TransientError, UnusableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.models import Ask, Model, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The bounds within which a request is tried again.

    Attributes:
        attempts: calls in all, the first included.
        first_seconds: bound of the first pause; it doubles with each.
        longest_seconds: the bound stops growing here; a server's `retry-after` is cut to it too.
        rest_seconds: after the last attempt, when to begin again.
    """

    attempts: int = 10
    first_seconds: float = 0.5
    longest_seconds: float = 60.0
    rest_seconds: float = 300.0

    def pause(self, attempt: int, error: TransientError) -> float:
        """Seconds before the attempt that follows `attempt` (counted from 0)."""
        return self.seconds(attempt, error.retry_after_seconds)

    def seconds(self, attempt: int, asked_seconds: float | None) -> float:
        """Seconds to wait after a failure: what the server asks for, and a random time."""
        import random  # noqa: PLC0415 -- 3 ms, only where a call has failed

        asked = min(asked_seconds or 0.0, self.longest_seconds)
        bound = min(self.first_seconds * 2 ** min(attempt, 64), self.longest_seconds)
        return asked + random.uniform(0, bound)  # noqa: S311 -- spreads load, guards nothing


@dataclass(slots=True)
class Retrying:
    """A model that tries again, whatever of it fails in passing.

    Attributes:
        tell: gets why an attempt failed, how many seconds the pause before the next one takes,
            and its number, the first call being 1.
        settled: called when none comes any more, whether one has failed or not.
    """

    model: Model
    policy: RetryPolicy
    tell: Callable[[TransientError, float, int], None]
    settled: Callable[[], None] = lambda: None

    async def reply(self, ask: Ask) -> Reply:
        """Answer, after as many attempts as `RetryPolicy` allows; a cancellation ends the waiting.

        Raises:
            UnusableError: the last attempt failed too, or a person has to do something.
        """
        odd = ""
        try:
            for attempt in range(self.policy.attempts - 1):
                try:
                    return await self.model.reply(ask)
                except OddReplyError as error:
                    if error.kind == odd:  # not an outage, and the server may charge for each
                        raise self._give_up(error, "twice in a row") from error
                    odd = error.kind
                    await self._pause(attempt, error)
                except TransientError as error:
                    odd = ""
                    await self._pause(attempt, error)
            return await self.model.reply(ask)
        except TransientError as error:
            why = f"gave up after {self.policy.attempts} attempts"
            raise self._give_up(error, why) from error
        finally:
            self.settled()

    def _give_up(self, error: TransientError, why: str) -> UnusableError:
        rest = self.policy.rest_seconds
        again = f"next one in {rest:g} s or with the next mail"
        return UnusableError(f"{error}; {why}, {again}", again_in_seconds=rest)

    async def _pause(self, attempt: int, error: TransientError) -> None:
        import asyncio  # noqa: PLC0415 -- the supervisor has the policy alone

        pause = self.policy.pause(attempt, error)
        self.tell(error, pause, attempt + 2)
        if not isinstance(error, RefusedError):  # for its slot, with all others
            await asyncio.sleep(pause)
