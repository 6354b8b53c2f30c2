"""The model of a teammate: that of the settings, in wrappers that a request passes one by one.

`Retrying` asks again on failure. `LiveOutput` lets a person read along. `Throttle` waits for one of
the team's slots. `Metered` reserves tokens and money in the ledger, and settles them after the
reply. The innermost model sends the request: `Claude`, or a script in its place.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from teamd import clocks
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.environment import Environment
from teamd.agent.throttle import Throttle
from teamd.budget.account import NOTHING, Account, Reservation
from teamd.budget.accounts import Terms
from teamd.budget.ledger import Ledger
from teamd.errors import StoreError
from teamd.files.safe_open import safe_open
from teamd.journal import LoggedEvent
from teamd.messages import new_id
from teamd.model_server.connection import server_address
from teamd.model_server.facts import UNKNOWN, ModelFacts
from teamd.model_server.pages import keep, read_kept
from teamd.model_server.usage import Usage
from teamd.models import (
    Ask,
    LimitError,
    Model,
    ModelError,
    RefusedError,
    Reply,
    TransientError,
    UnusableError,
)
from teamd.models.encoding import size_of
from teamd.models.prices import FREE, Price, Prices
from teamd.models.retry import Rests, Retrying, RetryPolicy
from teamd.models.scripted import Scripted
from teamd.process_id import Identity
from teamd.transcript.live import LiveText

if TYPE_CHECKING:
    from teamd.models.claude import Claude

# Tokens that a server may put before a first prompt, such as how tools are called.
UNSEEN_TOKENS: Final = 1024
_MEND: Final = "`teamctl doctor` checks the machine; then send mail to try again"
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_ASK_AGAIN_SECONDS: Final = 60.0


class ModelStack:
    """Makes the models of one teammate's conversations, and learns the server's facts and key."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._settings = env.settings.model
        self._ledger = env.ledger
        self._facts: dict[str, ModelFacts | None] = {}
        self._address = server_address(self._settings.base_url)
        self._ask_again_at = 0.0
        self._rests = Rests()

    async def facts(self, model: str) -> ModelFacts:
        """Return the server's facts about a model; it is asked once a day.

        A server that does not answer is asked again a minute later.
        """
        if self._settings.script is not None:
            return UNKNOWN
        known = self._facts.get(model)
        if known is None:
            known = self._facts[model] = read_kept(self._env.paths, self._address, model)
        if known is None and clocks.elapsed() >= self._ask_again_at:
            page = await self._claude.ask_page(model)
            if page is None:
                self._ask_again_at = clocks.elapsed() + _ASK_AGAIN_SECONDS
            else:
                known = self._facts[model] = keep(self._env.paths, self._address, model, page)
        return known or UNKNOWN

    def make(
        self, conversation: Conversation, *, live: bool = False, beside: bool = False
    ) -> Model:
        """Make the model of one conversation.

        Args:
            conversation: is on disk before anything is asked.
            live: whether a person reads along.
            beside: whether the teammate itself does other things meanwhile.
        """
        settings, scripted = self._settings, self._settings.script is not None
        # From the last wrapper before the server to the first that a request meets.
        model: Model = Metered(
            self._server_model,
            self._ledger,
            self._env.name,
            Identity.own(),
            free=scripted,
            settle=conversation.settle,
        )
        model = Throttle(model, self._env.slots, caches=settings.cache and not scripted)
        if live:
            model = LiveOutput(model, self._env.paths.partial(self._env.name))
        policy = RetryPolicy(
            attempts=settings.attempts,
            longest_seconds=settings.retry_seconds,
            rest_seconds=settings.rest_seconds,
        )
        show = not beside
        return Retrying(
            model,
            policy,
            tell=self._show_retry if show else self._note_retry,
            settled=self._env.presence.end_retry if show else lambda: None,
            renew_key=self._renew_key,
            rests=self._rests,
        )

    async def learn_key(self) -> None:
        """Have `key_command` tell the key: text that is read before the first call may hold it."""
        if self._settings.script is None and self._settings.key_command is not None:
            try:
                await self._claude.learn_key()
            except Exception as error:  # noqa: BLE001 -- the first call fails alike, and says so
                self._env.journal.error("key not learned", error)

    async def _renew_key(self) -> bool:
        return self._settings.script is None and await self._claude.renew_key()

    @property
    def _server_model(self) -> Model:
        script = self._settings.script
        return self._claude if script is None else Scripted(script)

    async def try_client(self) -> None:
        """Build the client of the model's server, without a key, and send nothing.

        Raises:
            Exception: it cannot be built on this machine.
        """
        if self._settings.script is None:
            client = replace(self._claude, key_command=None, key="no-key-is-sent")
            await client.learn_key()
            await client.close()

    @cached_property
    def _claude(self) -> Claude:
        from teamd.models import claude  # noqa: PLC0415 -- loads the SDK; a script needs none

        settings = self._settings
        return claude.Claude(
            base_url=settings.base_url,
            key_command=settings.key_command,
            headers=settings.headers,
            timeout_seconds=settings.timeout_seconds,
            cache=settings.cache,
            cache_ttl=settings.cache_ttl,
            mask=self._env.mask,
        )

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
        facts = {"attempt": attempt, "attempts": self._settings.attempts}
        self._env.journal.warn(
            LoggedEvent.RETRY,
            reason=str(error),
            seconds=round(seconds, 1),
            **facts,
        )


@dataclass(slots=True)
class Metered:
    """A model that is not asked if its reply might exceed a limit.

    Attributes:
        ledger: records the calls of the whole team.
        name: the teammate's.
        process: this one; its calls are settled for it when it dies.
        free: whether calls cost nothing.
        settle: brings the conversation to the disk. It follows the write of the ledger, since the
            disk then writes most of both at once.
    """

    model: Model
    ledger: Ledger
    name: str
    process: Identity
    free: bool = False
    settle: Callable[[], None] = lambda: None
    _own: Any = None
    _prices: Prices | None = None

    async def reply(self, ask: Ask) -> Reply:
        """Answer within the limits.

        Raises:
            LimitError: one is too low for the call; nothing was asked.
        """
        reservation = await self._reserve(ask)
        account: Account | None = NOTHING
        try:
            self.settle()
            account = None  # in full: a call that is cut off may have taken anything
            reply = await self._ask(ask)
            account = _account(reply.usage, self._find_price(ask.model))
        except ModelError as error:
            if not error.begun:
                account = NOTHING
            elif error.usage is not None and error.broke_off:
                account = self._assume_output(error.usage, ask)
            elif error.usage is not None:
                account = _account(error.usage, self._find_price(ask.model))
            raise
        finally:
            self.ledger.settle(reservation, account)
        return reply

    def _assume_output(self, usage: Usage, ask: Ask) -> Account | None:
        """Return the input as reported and the longest output.

        The server may go on behind a broken connection, and sends thinking in a shortened form.
        """
        usage = replace(usage, output_tokens=ask.max_tokens)
        account = _account(usage, self._find_price(ask.model))
        return None if account is None else replace(account, assumed_calls=1)

    async def _ask(self, ask: Ask) -> Reply:
        """Ask the model.

        Raises:
            ModelError: as a model raises it; also where not even its client could be built, so that
                nothing was sent: a proxy, a certificate or a package is missing, say.
        """
        try:
            return await self.model.reply(ask)
        except ModelError:
            raise
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise UnusableError(
                f"the model cannot be asked from here: {why}; {_MEND}", command="teamctl doctor"
            ) from error

    async def _reserve(self, ask: Ask) -> Reservation:
        wanted = Reservation(
            id=new_id(),
            teammate=self.name,
            process=self.process,
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
        return FREE if self.free or self._prices is None else self._prices.find(model)


@dataclass(slots=True)
class LiveOutput:
    """A model whose words appear in a file while they come; the file is never taken for the reply.

    The file's first line names the attempt: a reply that broke off starts over. The file is made
    with the first word, or with the request if half a reply may have been read before. It is
    removed when the reply is whole, or has failed.
    """

    model: Model
    path: Path
    _half: bool = True  # may have been read; an earlier process may have been killed in mid-reply
    _stands: bool = True  # as far as is known
    _named: bool = False
    _text: LiveText = field(default_factory=LiveText)

    async def reply(self, ask: Ask) -> Reply:
        """Answer; if the file cannot be written, the reply is only not shown."""
        self._remove()
        if ask.aside:
            return await self.model.reply(ask)
        if self._half:
            self._append("")
        self._half = True
        try:
            heard = replace(ask, heard=self._hear, thought=self._think)
            reply = await self.model.reply(heard)
            self._half = False
        finally:
            self._remove()
        return reply

    def _hear(self, text: str) -> None:
        self._append(self._text.add(text, thinks=False))

    def _think(self, text: str) -> None:
        self._append(self._text.add(text, thinks=True))

    def _append(self, text: str) -> None:
        begins, self._stands = not self._named, True
        if begins:
            text = f"{os.urandom(8).hex()}\n{text}"
        with suppress(OSError, StoreError):
            flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if begins else os.O_APPEND)
            fd = safe_open(self.path, flags)
            try:
                os.write(fd, text.encode(errors="replace"))
                self._named = True
            finally:
                os.close(fd)

    def _remove(self) -> None:
        self._named, self._text = False, LiveText()
        if self._stands:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
                self._stands = False


def _account(usage: Usage, price: Price | None) -> Account | None:
    """Return the cost of a reply; `None` if the server does not report it."""
    if not usage.total_tokens:
        return None
    return Account.of_call(usage, None if price is None else price.cost(usage))


def _bound_input(ask: Ask) -> int:
    """Return the most tokens that the request can have: none is shorter than a byte."""
    whole = size_of([ask.system, ask.tools, ask.messages]) + UNSEEN_TOKENS
    return whole if ask.most_input_tokens is None else min(whole, ask.most_input_tokens)
