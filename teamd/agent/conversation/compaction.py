"""Keeps a conversation within the model's context: clears old results, then has it summarised."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from teamd.agent.conversation.context import BYTES_PER_TOKEN, frame_of
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import DEMAND, OpenWork, clip_text, restate
from teamd.messages import respawn_command
from teamd.model_server.facts import UNKNOWN, ModelFacts
from teamd.models import (
    CONTEXT_FULL,
    Ask,
    Model,
    RefusedMessageError,
    Reply,
    TooLongError,
    UnusableError,
)
from teamd.settings.schema import ModelSettings
from teamd.tools import ToolAccess, Toolbox

ASSUMED_CONTEXT_TOKENS: Final = 200_000  # where neither settings nor server say
_KEPT: Final = 3  # the last replies keep the results of their calls: they are being worked with
_WORTH_SHARE: Final = 0.1  # of the context; clearing less would cost more in caching than it saves
_LEAST_EXCHANGES: Final = 3  # between two summaries; otherwise the model would only summarise
_HALVINGS: Final = 8  # of the text that is kept word for word
_PART: Final = 3  # the oldest third of the shown exchanges is left out next
_ATTEMPTS: Final = 2  # replies without a summary in them
_FILLS: Final = 2  # replies in a row that filled the context, although a summary was made
_REPAIRS: Final = 3  # of one request
_PLAUSIBLE: Final = 1000  # tokens: no model that calls tools takes less
_NO_SUMMARY: Final = frozenset({"refusal", "pause_turn"})
_HOPELESS: Final = (
    "nothing is left to leave out: take a model with a larger context, or make AGENTS.md shorter "
    "and start over with {command}"
)
_FULL: Final = (
    "the conversation is too long for {model}, whose last reply had no room to end; start over "
    "with {command}"
)


async def ask_nobody(_model: str) -> ModelFacts:
    """Return the facts about a model whose server is not asked."""
    return UNKNOWN


@dataclass(kw_only=True, slots=True)
class Compaction:
    """Asks a model, and makes room for the answer.

    Attributes:
        settings: limits for the length of the conversation and of a reply.
        model_name: returns the model to ask; gets the name that the role asks for.
        effort: returns the effort to ask for; gets the level that the role asks for.
        server: identifies the server: thinking is sent back to that server only.
        facts: returns the server's facts about a model.
        asker: the teammate that a person respawns if nothing else helps.
        open_work: returns the open work that a summary repeats.
    """

    conversation: Conversation
    model: Model
    toolbox: Toolbox
    settings: ModelSettings
    model_name: Callable[[str | None], str]
    effort: Callable[[str | None], str] = lambda _: ""
    server: str = ""
    facts: Callable[[str], Awaitable[ModelFacts]] = ask_nobody
    asker: str = ""
    open_work: OpenWork = tuple
    _known: ModelFacts = UNKNOWN
    _refused_above: int | None = None
    _system_refused: bool = False
    _fills: int = 0
    _requested: bool = False

    @property
    def fill(self) -> float:
        """The share of the context that the next request takes."""
        context, fixed = self.conversation.context, 0
        if not context.measured:  # the measured tokens include them
            system = self.conversation.opened.system
            schemas = self.toolbox.schemas(self.granted)
            fixed = len(system.encode()) + len(json.dumps(schemas))
        return context.estimate(fixed) / self.context_tokens

    @property
    def context_tokens(self) -> int:
        """The longest request: the minimum of the settings, the server's facts and its refusals."""
        said = (self.settings.context_tokens, self._known.context_tokens, self._refused_above)
        return min(filter(None, said), default=ASSUMED_CONTEXT_TOKENS)

    @property
    def system_notes(self) -> bool:
        """Whether the server takes teamd's own notes under the role `system`."""
        return self._known.system_messages and not self._system_refused

    @property
    def granted(self) -> ToolAccess:
        """The tools that the conversation has had since it began."""
        opened = self.conversation.opened
        return ToolAccess(workspace=opened.tools, dropped=opened.dropped)

    @property
    def model_asked(self) -> str:
        """The name of the model that is asked."""
        return self.model_name(self.conversation.opened.model)

    def request(self) -> None:
        """Have the conversation summarised before its next reply, however short it is."""
        self._requested = True

    async def reply(self, deliver: Callable[[], object] = lambda: None) -> Reply:
        """Ask the model for the next reply, with a request that fits into its context.

        The number of requests is bounded: each step shortens the next one.

        Args:
            deliver: puts waiting mail into the conversation. It is called once before each request,
                so that a flood arrives in portions. A subagent has no mail.

        Raises:
            UnusableError: a person has to act, or the conversation cannot be shortened further.
        """
        self._known = await self.facts(self.model_asked)
        deliver()
        if await self._make_room():
            deliver()
        try:
            return await self._reply_repaired()
        except TooLongError as error:
            return await self._reply_shortened(error)

    async def _reply_shortened(self, refused: TooLongError) -> Reply:
        """Make the conversation shorter, step by step, until the model takes it."""
        async with aclosing(self._shorten()) as steps:
            self._learn(refused.limit_tokens)
            async for _ in steps:
                try:
                    return await self._reply_repaired()
                except TooLongError as error:
                    self._learn(error.limit_tokens)
                    refused = error
        hint = _HOPELESS.format(command=respawn_command(self.asker, "--fresh"))
        raise UnusableError(f"{refused}; {hint}") from refused

    async def _reply_repaired(self) -> Reply:
        """Ask; replace a message that the server refuses, and as a last resort all messages."""
        for _ in range(_REPAIRS):
            try:
                return await self._request(self._ask())
            except RefusedMessageError as error:
                self._repair(error)
        self._fall_back(0)
        return await self._request(self._ask())

    async def _request(self, ask: Ask) -> Reply:
        """Ask once; the reply carries the frame of the request, for its record."""
        return replace(await self.model.reply(ask), frame=ask.frame)

    def _repair(self, refused: RefusedMessageError) -> None:
        """Replace the message that the server refused, or stop sending it system messages."""
        if not refused.system:
            self.conversation.repair(refused, system=self.system_notes)
        elif self.system_notes:
            self._system_refused = True
        else:
            raise refused

    def _ask(self, demand: str = "", *, skipped: int = 0, texts: bool = True) -> Ask:
        """Return a request of the conversation as it is now, or one for a summary.

        Args:
            demand: the text that asks for a summary.
            skipped: see `Context.messages_with`.
            texts: see `Context.messages_with`.
        """
        opened, context = self.conversation.opened, self.conversation.context
        system = self.system_notes
        ask = Ask(
            model=self.model_asked,
            system=opened.system,
            tools=self.toolbox.schemas(self.granted),
            messages=[],
            max_tokens=min(filter(None, (self.settings.max_tokens, self._known.output_tokens))),
            effort=self.effort(opened.effort),
            facts=self._known,
            asker=self.asker,
            system_notes=system,
            aside=bool(demand),
        )
        frame = frame_of(ask, self.server)
        if demand:
            messages = context.messages_with(
                demand, skipped=skipped, texts=texts, frame=frame, system=system
            )
        else:
            messages = context.messages(frame, system=system)
        known = None if skipped else context.most_tokens(messages, frame, system=system)
        return replace(ask, messages=messages, frame=frame, most_input_tokens=known)

    async def _make_room(self) -> bool:
        """Clear or summarise if the context is filling up, or the last reply has filled it.

        Returns:
            Whether that needed a request to the model.
        """
        conversation = self.conversation
        if conversation.stop_reason == CONTEXT_FULL:
            await self._answer_full()
            return True
        self._fills = 0
        requested, self._requested = self._requested, False
        if not (requested and conversation.context.length):
            if self.fill < self.settings.clear_at:
                return False
            worth = _WORTH_SHARE * self.context_tokens * BYTES_PER_TOKEN
            conversation.clear(kept=_KEPT, least_bytes=int(worth))
            long = conversation.context.length >= _LEAST_EXCHANGES
            if not long or self.fill < self.settings.compact_at:
                return False
        await self._summarise()
        return True

    async def _answer_full(self) -> None:
        """Summarise after a reply that filled the context completely."""
        self._fills += 1
        if self._fills > _FILLS:
            self._fills = 0  # the next mail is another try
            command = respawn_command(self.asker, "--fresh")
            raise UnusableError(_FULL.format(model=self.model_asked, command=command))
        self._learn(self.conversation.context.measured)
        await self._summarise()

    async def _shorten(self) -> AsyncGenerator[None]:
        """Clear, then summarise, then leave out more and more; yield after each step."""
        if self.conversation.clear(kept=_KEPT, least_bytes=1):
            yield
        if self.conversation.context.length:
            await self._summarise()
            yield
        for halvings in range(_HALVINGS):
            self._fall_back(halvings)
            yield

    async def _summarise(self) -> None:
        """Have the model summarise the conversation, or as much of it as the model accepts."""
        context, texts, skipped, failed = self.conversation.context, True, 0, 0
        while skipped < context.length and failed < _ATTEMPTS:
            try:
                reply = await self._request(self._ask(DEMAND, skipped=skipped, texts=texts))
            except TooLongError as error:
                self._learn(error.limit_tokens)
                texts, skipped = self._show_less(skipped, texts=texts)
                continue
            except RefusedMessageError as error:
                if not error.system:
                    break
                self._repair(error)
                continue
            text = reply.text.strip()
            if text and reply.stop_reason not in _NO_SUMMARY:
                restated = self._restate(0)
                self.conversation.summarise(restated, text=text, reply=reply, skipped=skipped)
                return
            self.conversation.add_failed_summary(reply)
            failed += 1
        self._fall_back(0)

    def _fall_back(self, step: int) -> None:
        """Replace the conversation by known facts alone, fewer with each step."""
        skipped = self.conversation.context.length
        text = clip_text(self.conversation.summary, self._limit_bytes(step))
        self.conversation.summarise(self._restate(step), text=text, reply=None, skipped=skipped)

    def _restate(self, step: int) -> str:
        who, items = self.conversation.identity, self.conversation.open_items
        return restate(who, self.open_work, items, limit_bytes=self._limit_bytes(step))

    def _limit_bytes(self, step: int) -> int:
        """Return how many bytes are kept word for word: at first about a quarter of the context."""
        return self.context_tokens >> step

    def _show_less(self, skipped: int, *, texts: bool) -> tuple[bool, int]:
        """Return `texts` and `skipped` for a shorter attempt, after these were too long."""
        if texts:  # texts after the last reply are kept beside the summary
            return False, skipped
        length = self.conversation.context.length
        skipped += (length - skipped) // _PART + 1
        if skipped >= length and self.conversation.clear(kept=0, least_bytes=1):
            return False, 0  # it is the newest results that are too long, not the old exchanges
        return False, skipped

    def _learn(self, limit_tokens: int | None) -> None:
        """Remember the limit that the server named, so that it need not refuse the next request."""
        if limit_tokens is not None and _PLAUSIBLE <= limit_tokens < self.context_tokens:
            self._refused_above = limit_tokens
