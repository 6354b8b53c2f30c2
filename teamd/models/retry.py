"""The retry policy: bounded, with exponential backoff with full jitter.

The scheme is that of "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): a random
time up to a bound that doubles, so that teammates that failed together do not return together.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from teamd.clocks import time_of_day
from teamd.models import (
    LONG_WAIT_SECONDS,
    Ask,
    KeyRefusedError,
    LaterError,
    Model,
    OddReplyError,
    RefusedError,
    Reply,
    TransientError,
    UnusableError,
)

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

    def pause(self, attempt: int, error: TransientError) -> float:
        """Seconds before the attempt that follows `attempt` (counted from 0)."""
        return self.seconds(attempt, error.retry_after_seconds)

    def seconds(self, attempt: int, asked_seconds: float | None) -> float:
        """Seconds to wait after a failure: the server's wish plus a random time."""
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


@dataclass(slots=True)
class Rests:
    """The rests after refusals of the account; all conversations of a teammate share them.

    Attributes:
        count: how many there were since the last reply.
    """

    count: int = 0


async def _keep_key() -> bool:
    return False


@dataclass(slots=True)
class Retrying:
    """A model that tries again after a passing failure.

    Attributes:
        tell: gets why an attempt failed, how many seconds the pause before the next one takes,
            and its number, the first call being 1.
        settled: called when no further attempt follows, even if none has failed.
        renew_key: asks for a fresh key; returns whether it differs from the refused one.
        rests: those after refusals of the account.
    """

    model: Model
    policy: RetryPolicy
    tell: Callable[[TransientError, float, int], None]
    settled: Callable[[], None] = lambda: None
    renew_key: Callable[[], Awaitable[bool]] = _keep_key
    rests: Rests = field(default_factory=Rests)

    async def reply(self, ask: Ask) -> Reply:
        """Answer, after as many attempts as `RetryPolicy` allows; a cancellation ends the waiting.

        Raises:
            UnusableError: the last attempt failed too, the server asks for a long wait, or a person
                has to act.
        """
        try:
            reply = await self._attempt_all(ask)
        except LaterError as error:
            raise self._rest(error, ask) from error
        finally:
            self.settled()
        self.rests.count = 0
        return reply

    async def _attempt_all(self, ask: Ask) -> Reply:
        """Ask until there is a reply; where the key is refused, once more with a fresh one."""
        failures, renewed, odd = 0, False, ""
        while True:
            try:
                return await self.model.reply(ask)
            except KeyRefusedError:
                if renewed or not await self.renew_key():
                    raise
                renewed = True
            except TransientError as error:
                failures += 1
                kind = error.kind if isinstance(error, OddReplyError) else ""
                if kind and kind == odd:  # not an outage, and the server may charge for each
                    raise self._give_up(error, "twice in a row") from error
                odd = kind
                if failures == self.policy.attempts:
                    attempts = f"gave up after {self.policy.attempts} attempts"
                    raise self._give_up(error, attempts) from error
                await self._pause(failures - 1, error)

    def _give_up(self, error: TransientError, why: str) -> UnusableError:
        rest = self.policy.rest_seconds
        again = f"next one in {rest:g} s or with the next mail"
        return UnusableError(f"{error}; {why}, {again}", again_in_seconds=rest)

    def _rest(self, error: LaterError, ask: Ask) -> UnusableError:
        asked, command = error.again_in_seconds, error.command
        rest = self.policy.rest(self.rests.count, asked)
        self.rests.count += 1
        again = f"next try in {rest:g} s or with the next mail"
        if by_server := rest == asked:
            resume = f"teamctl resume {ask.asker or 'NAME'}"
            moment = time_of_day(time.time() + rest)
            again = f"the server takes the next try at {moment}; `{resume}` tries now"
            command = command or resume
        return UnusableError(
            f"{error}; {again}", rest, about=error.about, by_server=by_server, command=command
        )

    async def _pause(self, attempt: int, error: TransientError) -> None:
        pause = self.policy.pause(attempt, error)
        self.tell(error, pause, attempt + 2)
        if not isinstance(error, RefusedError):  # for its slot, with all others
            await asyncio.sleep(pause)
