"""Limits on tokens and money: the most that a call may take is reserved before it is made."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from teamd.agent.conversation.token_counts import REMEMBERED, CountedRequest, frame_of, size_of
from teamd.budget.accounts import NOTHING, Account, Reservation
from teamd.messages import new_id
from teamd.models import LimitError, ModelError
from teamd.models.prices import FREE, Price, Prices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from teamd.budget.ledger import Ledger
    from teamd.models import Ask, Model, Reply
    from teamd.process_id import Identity
    from teamd.tokens import Usage

# What a server may put before a first prompt by itself, such as how tools are called.
UNSEEN_TOKENS: Final = 1024
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0


@dataclass(slots=True)
class Metered:
    """A model that is not asked when its reply might exceed a limit; it serves one conversation.

    Attributes:
        ledger: where all of the team write down what they take.
        name: the teammate's.
        process: this one; its calls are settled for it when it dies.
        free: whether nobody charges for it.
        server: names who counts the tokens: of what another one has told, nothing is known.
        known: what an earlier process was told of the conversation, the newest first.
    """

    model: Model
    ledger: Ledger
    name: str
    process: Identity
    free: bool = False
    server: str = ""
    known: Sequence[CountedRequest] = ()
    _own: Any = None
    _prices: Prices | None = None

    async def reply(self, ask: Ask) -> Reply:
        """Answer within the limits; the reply says the frame of the request, for its record.

        Raises:
            LimitError: one is reached; nothing was asked.
        """
        price = self._price(ask.model)
        frame = frame_of(ask, self.server)
        reservation = await self._reserve(ask, frame, price)
        account: Account | None = None  # in full: a call that is cut off may have taken anything
        try:
            reply = await self.model.reply(ask)
            account = _account(reply.usage, price)
        except ModelError as error:
            if not error.begun:
                account = NOTHING
            raise
        finally:
            self.ledger.settle(reservation, account)
        self._remember(ask, frame, reply)
        return replace(reply, frame=frame)

    async def _reserve(self, ask: Ask, frame: str, price: Price | None) -> Reservation:
        tokens = self._input_bound(ask, frame)
        wanted = Reservation(
            id=new_id(),
            teammate=self.name,
            process=self.process,
            model=ask.model,
            input_tokens=tokens,
            output_tokens=ask.max_tokens,
            usd=None if price is None else price.most(tokens, ask.max_tokens),
        )
        pause = _FIRST_PAUSE_SECONDS
        while (refusal := self.ledger.reserve(wanted)) is not None:
            if not refusal.passing:
                raise LimitError(refusal.sentence(self.name), refusal.key, self._lifted)
            # Others' calls are under way, and mostly take less than what is kept back for them.
            await asyncio.sleep(random.uniform(0.5, 1.5) * pause)  # noqa: S311 -- no secret
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return wanted

    def _lifted(self) -> bool:
        return not self.ledger.is_refused(self.name)

    def _price(self, model: str) -> Price | None:
        if self.free:
            return FREE
        own = self.ledger.terms().prices
        if self._prices is None or own != self._own:
            self._own, self._prices = own, Prices(own)
        return self._prices.find(model)

    def _input_bound(self, ask: Ask, frame: str) -> int:
        """Return the most tokens that the request can have: none is shorter than a byte."""
        whole = size_of([ask.system, ask.tools, ask.messages]) + UNSEEN_TOKENS
        told = [known.bound(ask.messages) for known in self.known if known.frame == frame]
        return min([whole, *told])

    def _remember(self, ask: Ask, frame: str, reply: Reply) -> None:
        tokens = reply.usage.total_tokens
        if tokens:
            # The list is the conversation's own, and grows.
            messages = list(ask.messages)
            known = CountedRequest(
                frame=frame, messages=messages, said=reply.content, tokens=tokens
            )
            self.known = [known, *self.known][:REMEMBERED]


def _account(usage: Usage, price: Price | None) -> Account | None:
    """Return what a reply has taken; `None` where the server does not tell."""
    if not usage.total_tokens:
        return None
    return Account.of_call(usage, None if price is None else price.cost(usage))
