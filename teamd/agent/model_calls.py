"""A model call, all the way from the conversation to the server.

`ModelCalls.reply` tries again on failure. In each attempt a person may read along; the call waits
for one of the team's slots, reserves tokens and money in the ledger, and syncs the conversation to
disk. Then the provider sends the request: `Claude`, or a script in its place.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from teamd import clocks
from teamd.agent.call_slots import CallSlots
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.environment import Environment
from teamd.budget.account import NOTHING, Account, Reservation
from teamd.budget.accounts import Terms
from teamd.budget.ledger import Ledger
from teamd.budget.prices import FREE, Price, Prices
from teamd.journal import LoggedEvent
from teamd.messages import new_id
from teamd.model_server import Usage
from teamd.model_server.connection import server_address
from teamd.model_server.facts import UNKNOWN, ModelFacts
from teamd.model_server.pages import keep, read_kept
from teamd.models import (
    Ask,
    KeyRefusedError,
    LaterError,
    LimitError,
    ModelError,
    OddReplyError,
    Provider,
    ProviderOptions,
    RefusedError,
    Reply,
    RetryPolicy,
    TransientError,
    UnusableError,
    load_provider,
)
from teamd.models.encoding import prefix_of, size_of
from teamd.process_id import Identity
from teamd.transcript.live import LiveFile

# Tokens that a server may put before a first prompt, such as how tools are called.
UNSEEN_TOKENS: Final = 1024
_MEND: Final = "`teamctl doctor` checks the machine; then send mail to try again"
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_ASK_AGAIN_SECONDS: Final = 60.0


@dataclass(slots=True)
class Rests:
    """The rests after the server refused the account; a teammate's conversations share them.

    Attributes:
        count: how many there were since the last reply.
    """

    count: int = 0


@dataclass(slots=True, kw_only=True)
class ModelCalls:
    """The model calls of one conversation.

    Attributes:
        slots: the team's slots; a call waits for one.
        ledger: records the calls of the whole team.
        name: the teammate's.
        policy: how often a call is tried, and after which pauses.
        tell: called with why an attempt failed, the seconds of the pause before the next attempt,
            and the attempt's number, the first call being 1.
        settled: called when no further attempt follows, even if none has failed.
        rests: the rests after the server refused the account.
        live: the file in which a person can read along, if any.
        caches: whether the server caches the beginnings of requests.
        settle: syncs the conversation to disk. It follows the write of the ledger, since the
            disk then writes most of both at once.
    """

    provider: Provider
    slots: CallSlots
    ledger: Ledger
    name: str
    policy: RetryPolicy
    tell: Callable[[TransientError, float, int], None]
    settled: Callable[[], None] = lambda: None
    rests: Rests = field(default_factory=Rests)
    live: LiveFile | None = None
    caches: bool = False
    settle: Callable[[], None] = lambda: None
    _own: Any = None
    _prices: Prices | None = None

    async def reply(self, ask: Ask) -> Reply:
        """Return the reply, after up to `RetryPolicy.attempts` calls; a cancellation ends the wait.

        Raises:
            UnusableError: the last attempt failed too, the server asks for a long wait, or a person
                has to act.
            LimitError: a limit is too low for the call; no request was sent.
        """
        try:
            reply = await self._try_until_answered(ask)
        except LaterError as error:
            raise self._rest(error, ask) from error
        finally:
            self.settled()
        self.rests.count = 0
        return reply

    async def _try_until_answered(self, ask: Ask) -> Reply:
        """Ask until there is a reply; if the key is refused, ask once more with a fresh one."""
        failures, renewed = list[TransientError](), False
        while True:
            try:
                return await self._attempt(ask)
            except KeyRefusedError:
                if renewed or not await self.provider.renew_key():
                    raise
                renewed = True
            except TransientError as error:
                failures.append(error)
                self._check_failures(failures)
                pause = self.policy.seconds(len(failures) - 1, error.retry_after_seconds)
                self.tell(error, pause, len(failures) + 1)
                if not isinstance(error, RefusedError):  # for its slot, with all others
                    await asyncio.sleep(pause)

    def _check_failures(self, failures: Sequence[TransientError]) -> None:
        """Give up after the last attempt, or earlier if the server may charge for the failures.

        Raises:
            UnusableError: no attempt follows soon.
        """
        last = failures[-1]
        kinds = [one.kind if isinstance(one, OddReplyError) else "" for one in failures[-2:]]
        if len(kinds) > 1 and kinds[0] and kinds[0] == kinds[1]:  # not an outage
            raise self._give_up(last, "twice in a row", charged=True) from last
        if sum(one.begun and one.broke_off for one in failures) == self.policy.broken:
            why = f"{self.policy.broken} replies broke off"
            raise self._give_up(last, why, charged=True) from last
        if len(failures) == self.policy.attempts:
            raise self._give_up(last, f"gave up after {self.policy.attempts} attempts") from last

    async def _attempt(self, ask: Ask) -> Reply:
        """Ask once, when one of the team's slots is free."""
        with self._shown(ask) as shown:
            async with self.slots.hold(prefix_of(ask) if self.caches else "") as begun:
                return await self._ask_within_limits(replace(shown, begun=begun))

    @contextmanager
    def _shown(self, ask: Ask) -> Iterator[Ask]:
        """Show the reply as it streams in, unless it is a summary."""
        if self.live is None:
            yield ask
        elif ask.aside:
            self.live.remove()
            yield ask
        else:
            with self.live.written():
                yield replace(ask, heard=self.live.hear, thought=self.live.think)

    async def _ask_within_limits(self, ask: Ask) -> Reply:
        """Ask with a reservation in the ledger, and settle that with the reported usage."""
        reservation = await self._reserve(ask)
        account: Account | None = NOTHING
        try:
            self.settle()
            account = None  # in full: a call that is cut off may have taken anything
            reply = await self._ask_provider(ask)
            account = self._account(ask, reply.usage)
        except ModelError as error:
            account = NOTHING
            if error.begun:
                account = self._account(ask, error.usage, broke_off=error.broke_off)
            raise
        finally:
            self.ledger.settle(reservation, account)
        return reply

    async def _ask_provider(self, ask: Ask) -> Reply:
        """Ask the provider.

        Raises:
            ModelError: as the provider raises it; also if not even its client could be built, so
                that nothing was sent, for example without a proxy, a certificate or a package.
        """
        try:
            return await self.provider.reply(ask)
        except ModelError:
            raise
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise UnusableError(
                f"the model cannot be reached from here: {why}; {_MEND}", command="teamctl doctor"
            ) from error

    async def _reserve(self, ask: Ask) -> Reservation:
        wanted = Reservation(
            id=new_id(),
            teammate=self.name,
            process=Identity.own(),
            model=ask.model,
            input_tokens=_bound_input(ask),
            output_tokens=ask.max_tokens,
            usd=None,
        )
        pause = _FIRST_PAUSE_SECONDS
        while (refusal := self.ledger.reserve(wanted, self._priced)) is not None:
            if not refusal.passing:
                sentence = refusal.sentence(self.name)
                command = refusal.command(self.name)
                raise LimitError(sentence, refusal.key, self._lifted, refusal.until, command)
            # Other calls are running, and mostly take less than their reservation.
            await asyncio.sleep(random.uniform(0.5, 1.5) * pause)  # noqa: S311 -- no secret
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return wanted

    def _lifted(self) -> bool:
        return not self.ledger.is_refused(self.name)

    def _priced(self, wanted: Reservation, terms: Terms) -> Reservation:
        """Return a reservation with the price that the terms in force give it."""
        if self._prices is None or terms.prices != self._own:
            self._own, self._prices = terms.prices, Prices(terms.prices)
        price = self._find_price(wanted.model)
        usd = None if price is None else price.most(wanted.input_tokens, wanted.output_tokens)
        return replace(wanted, usd=usd)

    def _find_price(self, model: str) -> Price | None:
        """Return the price by the terms of the last reservation; `None` if it is not known."""
        free = not self.provider.is_server
        return FREE if free or self._prices is None else self._prices.find(model)

    def _account(self, ask: Ask, usage: Usage | None, *, broke_off: bool = False) -> Account | None:
        """Return the cost of a call; `None`, meaning the whole reservation, if none was reported.

        If the reply broke off, the longest output is assumed: the server may go on after a broken
        connection, and it sends thinking in a shortened form.
        """
        if usage is not None and broke_off:
            usage = replace(usage, output_tokens=ask.max_tokens)
        if usage is None or not usage.total_tokens:
            return None
        price = self._find_price(ask.model)
        account = Account.of_call(usage, None if price is None else price.cost(usage))
        return replace(account, assumed_calls=1) if broke_off else account

    def _give_up(self, error: TransientError, why: str, *, charged: bool = False) -> UnusableError:
        """Rest until the next attempt; if the server charges for failures, longer each time."""
        rest = self.policy.rest(self.rests.count if charged else 0)
        self.rests.count += charged
        again = f"next one in {rest:g} s or with the next mail"
        return UnusableError(f"{error}; {why}, {again}", again_in_seconds=rest)

    def _rest(self, error: LaterError, ask: Ask) -> UnusableError:
        asked, command = error.again_in_seconds, error.command
        rest = self.policy.rest(self.rests.count, asked)
        self.rests.count += 1
        again = f"next try in {rest:g} s or with the next mail"
        if by_server := rest == asked:
            resume = f"teamctl resume {ask.asker or 'NAME'}"
            moment = clocks.time_of_day(time.time() + rest)
            again = f"the server takes the next try at {moment}; `{resume}` tries now"
            command = command or resume
        return UnusableError(
            f"{error}; {again}", rest, about=error.about, by_server=by_server, command=command
        )


def _bound_input(ask: Ask) -> int:
    """Return the maximum number of tokens of the request: no token is shorter than a byte."""
    whole = size_of([ask.system, ask.tools, ask.messages]) + UNSEEN_TOKENS
    return whole if ask.most_input_tokens is None else min(whole, ask.most_input_tokens)


class TeammateModel:
    """The model of a teammate: makes the calls of its conversations, and knows the server."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._settings = env.settings.model
        self._facts: dict[str, ModelFacts | None] = {}
        self._address = server_address(self._settings.base_url)
        self._ask_again_at = 0.0
        self._rests = Rests()

    async def facts(self, model: str) -> ModelFacts:
        """Return the server's facts about a model; it is asked once a day.

        A server that does not answer is asked again a minute later.
        """
        if not self.provider.is_server:
            return UNKNOWN
        known = self._facts.get(model)
        if known is None:
            known = self._facts[model] = read_kept(self._env.paths, self._address, model)
        if known is None and clocks.elapsed() >= self._ask_again_at:
            page = await self.provider.ask_page(model)
            if page is None:
                self._ask_again_at = clocks.elapsed() + _ASK_AGAIN_SECONDS
            else:
                known = self._facts[model] = keep(self._env.paths, self._address, model, page)
        return known or UNKNOWN

    def calls_of(
        self, conversation: Conversation, *, live: bool = False, beside: bool = False
    ) -> ModelCalls:
        """Return the model calls of a conversation.

        Args:
            conversation: the conversation; it is on disk before each request.
            live: whether a person can read along.
            beside: whether the teammate itself does other things meanwhile.
        """
        env, settings = self._env, self._settings
        return ModelCalls(
            provider=self.provider,
            slots=env.slots,
            ledger=env.ledger,
            name=env.name,
            policy=RetryPolicy(
                attempts=settings.attempts,
                longest_seconds=settings.retry_seconds,
                rest_seconds=settings.rest_seconds,
            ),
            tell=self._note_retry if beside else self._show_retry,
            settled=(lambda: None) if beside else env.presence.end_retry,
            rests=self._rests,
            live=LiveFile(env.paths.partial(env.name)) if live else None,
            caches=settings.cache and self.provider.is_server,
            settle=conversation.settle,
        )

    async def learn_key(self) -> None:
        """Get the key from `key_command`: text that is read before the first call may hold it."""
        if self._settings.key_command is not None:
            try:
                await self.provider.learn_key()
            except Exception as error:  # noqa: BLE001 -- the first call fails alike, and says so
                self._env.journal.error("key not learned", error)

    @cached_property
    def provider(self) -> Provider:
        """The provider that the settings name."""
        settings = self._settings
        options = ProviderOptions(
            base_url=settings.base_url,
            key_command=settings.key_command,
            headers=settings.headers,
            timeout_seconds=settings.timeout_seconds,
            cache=settings.cache,
            cache_ttl=settings.cache_ttl,
            script=settings.script,
            mask=self._env.mask,
        )
        return load_provider(settings.provider).make(options)

    @property
    def server(self) -> str:
        """Identify the server: base URL, headers and script, as JSON."""
        settings = self._settings
        url = settings.base_url or os.environ.get("ANTHROPIC_BASE_URL")
        return json.dumps([str(settings.script), url, dict(settings.headers)])

    def _show_retry(self, error: TransientError, seconds: float, attempt: int) -> None:
        # If the server refuses several calls, the granter of slots knows when the next one begins.
        left = None if isinstance(error, RefusedError) else seconds
        self._env.presence.begin_retry(str(error), left, attempt, self._settings.attempts)
        self._note_retry(error, seconds, attempt)

    def _note_retry(self, error: TransientError, seconds: float, attempt: int) -> None:
        self._env.journal.warn(
            LoggedEvent.RETRY,
            reason=str(error),
            seconds=round(seconds, 1),
            attempt=attempt,
            attempts=self._settings.attempts,
        )
