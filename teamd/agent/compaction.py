"""Keeps a conversation within the model's context: clears old results, then has it summarised."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from teamd.agent import briefing
from teamd.agent.complaints import context_full
from teamd.agent.course import CONTEXT_FULL
from teamd.agent.gauge import BYTES_PER_TOKEN
from teamd.models import TooLongError, UnusableError
from teamd.remedies import again

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from teamd.agent.briefing import OpenWork
    from teamd.agent.conversation import Conversation
    from teamd.agent.gauge import Room
    from teamd.models import Ask, Model, Reply

_KEPT: Final = 3  # the last replies keep the results of their calls: they are being worked with
_WORTH_SHARE: Final = 0.1  # of the context; clearing less would cost more in caching than it saves
_LEAST_EXCHANGES: Final = 3  # between two summaries, or they would be all that is done
_HALVINGS: Final = 8  # of what is kept word for word
_PART: Final = 3  # of what is still shown, the oldest third is left out next
_VAIN: Final = 2  # replies without a summary in them
_FILLS: Final = 2  # replies in a row that filled the context, although a summary was made
_PLAUSIBLE: Final = 1000  # tokens: no model that calls tools takes less
_NO_SUMMARY: Final = frozenset({"refusal", "pause_turn"})
_HOPELESS: Final = (
    "nothing is left to leave out: take a model with a larger context, or make AGENTS.md shorter "
    "and begin anew with {command}"
)


class Compaction:
    """Asks a model, and makes room for the answer."""

    def __init__(
        self, conversation: Conversation, model: Model, *, room: Room, work: OpenWork
    ) -> None:
        self._talk = conversation
        self._model = model
        self._room = room
        self._work = work
        self._fills = 0
        self._wanted = False

    def want(self) -> None:
        """Have the conversation summarised before its next reply, however short it is."""
        self._wanted = True

    async def reply(self, ask: Callable[[], Ask], look: Callable[[], None]) -> Reply:
        """Have the conversation answered, as a request that the model has room for.

        Every request here ends: each step makes the next one shorter, and there are few.

        Args:
            ask: makes the request of the conversation of the moment.
            look: puts the mail of the moment into it; called once before each request, so that a
                flood does not come all at once.

        Raises:
            UnusableError: a person has to do something; also where nothing is left to shorten.
        """
        look()
        if await self._make_room(ask):
            look()
        refused: TooLongError | None = None
        async with aclosing(self._shortened(ask)) as attempts:
            async for _ in attempts:
                try:
                    return await self._model.reply(ask())
                except TooLongError as error:
                    self._learn(error.limit_tokens)
                    refused = error
        mend = _HOPELESS.format(command=again(ask().asker, "--fresh"))
        raise UnusableError(f"{refused}; {mend}") from refused

    async def _make_room(self, ask: Callable[[], Ask]) -> bool:
        """Clear or summarise where the context is filling up, or the last reply has filled it.

        Returns:
            Whether it took a request.
        """
        if self._talk.stop_reason == CONTEXT_FULL:
            self._fills += 1
            if self._fills > _FILLS:
                self._fills = 0  # the next mail is another try
                raise context_full(ask())
            self._learn(self._talk.gauge.measured)
            await self._summarise(ask)
            return True
        self._fills = 0
        wanted, self._wanted = self._wanted, False
        if wanted and self._talk.view.length:
            await self._summarise(ask)
            return True
        if self._fill(ask()) < self._room.clear_at:
            return False
        worth = _WORTH_SHARE * self._room.context_tokens * BYTES_PER_TOKEN
        self._talk.clear(kept=_KEPT, least_bytes=int(worth))
        long = self._talk.view.length >= _LEAST_EXCHANGES
        if not long or self._fill(ask()) < self._room.compact_at:
            return False
        await self._summarise(ask)
        return True

    async def _shortened(self, ask: Callable[[], Ask]) -> AsyncGenerator[None]:
        """Leave the conversation as it is, then make it shorter step by step."""
        yield
        if self._talk.clear(kept=_KEPT, least_bytes=1):
            yield
        if self._talk.view.length:
            await self._summarise(ask)
            yield
        for halvings in range(_HALVINGS):
            self._fall_back(halvings)
            yield

    async def _summarise(self, ask: Callable[[], Ask]) -> None:
        """Have the model summarise the conversation, or as much of it as it takes."""
        view, texts, skipped, vain = self._talk.view, True, 0, 0
        while skipped < view.length and vain < _VAIN:
            given = ask()
            messages = view.demanding(briefing.DEMAND, skipped=skipped, texts=texts)
            try:
                reply = await self._model.reply(replace(given, messages=messages, aside=True))
            except TooLongError as error:
                self._learn(error.limit_tokens)
                texts, skipped = self._less(texts, skipped)
                continue
            text = reply.text.strip()
            if text and reply.stop_reason not in _NO_SUMMARY:
                self._talk.summarise(self._restated(0), text=text, reply=reply, skipped=skipped)
                return
            self._talk.add_vain_reply(reply)
            vain += 1
        self._fall_back(0)

    def _fall_back(self, step: int) -> None:
        """Do with what the program itself knows, the shorter the higher the step."""
        skipped = self._talk.view.length
        text = briefing.clip(self._talk.summary, self._limit(step))
        self._talk.summarise(self._restated(step), text=text, reply=None, skipped=skipped)

    def _restated(self, step: int) -> str:
        talk = self._talk
        return briefing.restate(talk.identity, self._work, talk.owed, limit_bytes=self._limit(step))

    def _limit(self, step: int) -> int:
        """How many bytes are kept word for word: at first about a quarter of the context."""
        return self._room.context_tokens >> step

    def _less(self, texts: bool, skipped: int) -> tuple[bool, int]:  # noqa: FBT001 -- as they are
        """What to show of a conversation of which so much was too long to be summarised."""
        if texts:  # what no reply followed stands beside the summary, word for word
            return False, skipped
        skipped += (self._talk.view.length - skipped) // _PART + 1
        if skipped >= self._talk.view.length and self._talk.clear(kept=0, least_bytes=1):
            return False, 0  # it is the newest results that are too long, not the old exchanges
        return False, skipped

    def _fill(self, given: Ask) -> float:
        """The share of the context that the next request takes."""
        fixed = len(given.system.encode()) + len(json.dumps(given.tools))
        tokens = self._talk.gauge.tokens(self._talk.view.bytes, fixed)
        return tokens / self._room.context_tokens

    def _learn(self, limit_tokens: int | None) -> None:
        """Believe the server about its model, so that it need not refuse the next time."""
        if limit_tokens is not None and _PLAUSIBLE <= limit_tokens < self._room.context_tokens:
            self._room = replace(self._room, context_tokens=limit_tokens)
