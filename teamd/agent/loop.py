"""A teammate's loop: take mail, ask the model, run tools, write down, and wait."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from teamd.agent import prompts
from teamd.agent.briefing import NothingOpen
from teamd.agent.compaction import Compaction
from teamd.agent.complaints import gist
from teamd.agent.course import CONTEXT_FULL
from teamd.agent.gauge import Room
from teamd.agent.standing import LIMIT, PAUSED
from teamd.models import Ask, LimitError, UnusableError
from teamd.protocol import COMPACT_TYPE, moment_of
from teamd.states import Status
from teamd.store.mailbox import Portion
from teamd.tools import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Protocol

    from teamd.agent.bell import Bell
    from teamd.agent.briefing import OpenWork
    from teamd.agent.conversation import Conversation
    from teamd.agent.leaving import Leaving
    from teamd.agent.plans import Plans
    from teamd.models import Block, Model
    from teamd.protocol import Message
    from teamd.store.mailbox import Mailbox
    from teamd.tools import Toolbox

    class Outside(Protocol):
        """What a teammate says of itself, and to whom."""

        def report(self, status: Status, reason: str | None = None) -> None:
            """Tell the supervisor how it goes."""

        def tell_lead(self, text: str) -> None:
            """Send the lead a line."""


# A flood is read in portions that a context bears, each of them answered before the next.
PORTION = Portion(messages=100, bytes=128 * 1024, wary=True)
INTERRUPTED = "interrupted"
T = TypeVar("T")
CUT_OFF_REASONS = frozenset({"max_tokens", CONTEXT_FULL})


class InterruptedTurnError(Exception):
    """A person has broken off the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """What a teammate is told to be when its conversation begins.

    Attributes:
        model: the one that its role asks for; `None` for that of the team.
        tools: those of the workspace that it may use; `None` for all.
    """

    system: str
    role: str = ""
    team: str = ""
    model: str | None = None
    tools: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Something that happened beside the conversation.

    Attributes:
        about: names what happened; it is told once.
        text: what the model reads.
    """

    about: str
    text: str


class Loop:
    """One teammate at work.

    Args:
        name: the teammate's.
        persona: asked when a conversation begins: it takes the role of that moment.
        model_name: asked at each call, with what the conversation's role asks for.
        news: what there is to tell, told already or not; looked at before each call.
        fetch: looks for work where there is no mail; says whether there is some now.
        calls_per_wake: how many model calls one wake may take.
        max_tokens: per reply.
        room: how long a conversation may become.
        open_work: what a summary of it restates.
    """

    def __init__(
        self,
        *,
        name: str,
        persona: Callable[[], Persona],
        model_name: Callable[[str | None], str],
        news: Callable[[], Iterable[News]],
        conversation: Conversation,
        mailbox: Mailbox,
        model: Model,
        toolbox: Toolbox,
        bell: Bell,
        outside: Outside,
        fetch: Callable[[], bool],
        leaving: Leaving,
        plans: Plans,
        calls_per_wake: int,
        max_tokens: int,
        room: Room | None = None,
        open_work: OpenWork | None = None,
    ) -> None:
        self._name = name
        self._persona = persona
        self._model_name = model_name
        self._news = news
        self._conversation = conversation
        self._mailbox = mailbox
        self._toolbox = toolbox
        self._bell = bell
        self._outside = outside
        self._fetch = fetch
        self._leaving = leaving
        self._plans = plans
        self._calls_per_wake = calls_per_wake
        self._max_tokens = max_tokens
        self._doing: asyncio.Future[Any] | None = None
        self._interrupted = False
        self._compaction = Compaction(
            conversation, model, room=room or Room(), work=open_work or NothingOpen()
        )

    async def run(self) -> None:
        """Live until cancelled."""
        while True:
            self._bell.silence()  # before the look, so that no ring is lost between the two
            if not self._leaving.agreed():
                self._deliver()
            if self._leaves():
                self._leaving.leave()
                await self._bell.wait()  # for the supervisor to end it
                continue
            if not (self._conversation.owes_reply or self._conversation.unfollowed):
                if self._fetch():
                    continue
                self._outside.report(Status.IDLE)
                await self._bell.wait()
                continue
            try:
                await self._work()
            except UnusableError as error:
                await self._pause(error)
            except InterruptedTurnError:
                self._break_off()

    def interrupt(self) -> None:
        """Break off the turn that is under way, if there is one; the teammate lives on."""
        if self._doing is not None:
            self._interrupted = True
            self._doing.cancel()

    def _deliver(self) -> None:
        """Take mail and put it into the conversation, once."""
        batch = self._mailbox.take(PORTION)
        fresh: list[Message] = []
        for message in filter(self._conversation.is_new, batch.messages):
            if not any(message.is_same_as(other) for other in fresh):  # a retried send
                fresh.append(message)
        for message in fresh:
            if message.extra.get("fresh") is True or not self._conversation.system:
                self._open()
        if fresh:
            new_task = self._plans.is_new_task(fresh)
            self._conversation.deliver(fresh, taken=moment_of(batch.id), new_task=new_task)
            if new_task:
                self._plans.withdraw()
            self._leaving.close_old()
            if any(message.type == COMPACT_TYPE for message in fresh):
                self._compaction.want()
        self._mailbox.done(batch)
        self._tell_news()

    def _tell_news(self) -> None:
        for news in self._news():
            if news.about not in self._conversation.told:
                self._conversation.add_news(news.about, news.text)

    def _leaves(self) -> bool:
        return self._leaving.ready(more_mail=self._mailbox.waiting())

    def _open(self) -> None:
        persona = self._persona()
        self._conversation.open(
            persona.system,
            name=self._name,
            role=persona.role,
            team=persona.team,
            model=persona.model,
            tools=None if persona.tools is None else sorted(persona.tools),
        )

    async def _work(self) -> None:
        """One wake: go on until the model ends its turn or the calls are used up.

        What an earlier process was in the middle of is done to its end in the same way.
        """
        for _ in range(self._calls_per_wake):
            if self._conversation.unfollowed and await self._follow():
                return
            if self._leaving.agreed():
                return
            self._outside.report(Status.WORKING)
            reply = await self._interruptible(self._compaction.reply(self._ask, self._deliver))
            self._conversation.add_reply(reply)
        if await self._follow() or self._leaving.agreed():
            return
        self._conversation.end_turn(LIMIT, "")
        self._outside.tell_lead(
            f"{self._name} stopped after {self._calls_per_wake} model calls without ending its "
            f"turn and is idle now; send {self._name} a message to let it go on"
        )

    def _ask(self) -> Ask:
        return Ask(
            model=self._model_name(self._conversation.model),
            system=self._conversation.system,
            tools=self._toolbox.schemas(self._conversation.tools),
            messages=self._conversation.messages(),
            max_tokens=self._max_tokens,
        )

    async def _follow(self) -> bool:
        """Do what the last reply asks for; returns whether the turn has ended."""
        talk = self._conversation
        calls = talk.unanswered
        if calls and talk.stop_reason == "tool_use":
            for call in calls:
                talk.add_result(call, await self._interruptible(self._run(call)))
            return False
        for call in calls:
            talk.add_result(call, Result(text=prompts.CUT_OFF_CALL, is_error=True))
        if talk.stop_reason in CUT_OFF_REASONS and not calls:
            talk.add_note(prompts.CUT_OFF_REPLY)
        if talk.owes_reply:
            return False
        self._end()
        return True

    async def _run(self, call: Block) -> Result:
        """Run a tool call, unless an earlier process began it and it must not be repeated."""
        if call["id"] in self._conversation.begun and not self._toolbox.repeats(call["name"]):
            return Result(text=prompts.INTERRUPTED_CALL, is_error=True)
        key = self._conversation.begin_call(call)
        granted = self._conversation.tools
        return await self._toolbox.run(call["name"], call["input"], key=key, granted=granted)

    async def _interruptible(self, work: Coroutine[Any, Any, T]) -> T:
        self._interrupted = False
        doing: asyncio.Future[T] = asyncio.ensure_future(work)
        self._doing = doing
        try:
            return await doing
        except asyncio.CancelledError:
            if self._interrupted:
                raise InterruptedTurnError from None
            raise
        finally:
            doing.cancel()  # whoever is cancelled itself leaves nothing running behind
            self._doing = None

    def _break_off(self) -> None:
        """Leave the conversation as one that the API takes, and the turn as ended."""
        for call in self._conversation.unanswered:
            self._conversation.add_result(call, Result(text=prompts.BROKEN_OFF_CALL, is_error=True))
        self._conversation.end_turn(INTERRUPTED, "")

    def _end(self) -> None:
        reason = self._conversation.stop_reason
        self._conversation.end_turn(reason, self._conversation.said)
        if reason == "refusal":
            self._outside.tell_lead(
                f"the model of {self._name} refused to go on with what it was asked; "
                f"ask differently, or begin anew with `teamctl spawn {self._name} … --fresh`"
            )

    async def _pause(self, error: UnusableError) -> None:
        """Wait for a person to mend it: the next mail, or later by oneself, is the next try.

        At a limit there is none until it was raised, and a person has said that it goes on.
        """
        about = gist(error)
        told = self._conversation.paused_about  # maybe by an earlier process
        self._conversation.end_turn(PAUSED, str(error), about=about)
        self._outside.report(Status.PAUSED, str(error))
        if about != told:
            self._outside.tell_lead(f"{self._name} is paused: {error}")
        await self._rest(error.again_in_seconds, self._end_of(error))

    def _end_of(self, error: UnusableError) -> Callable[[], bool]:
        """What ends a pause. At a limit mail waits where it is, unless it asks to shut down."""
        if isinstance(error, LimitError):
            return lambda: error.lifted() or self._leaving.asked()
        return self._mailbox.waiting

    async def _rest(self, seconds: float | None, over: Callable[[], bool]) -> None:
        """Wait until it is over, or for so many seconds, or until it leaves."""
        now = asyncio.get_running_loop().time
        until = math.inf if seconds is None else now() + seconds
        while not (over() or self._leaves()) and (left := until - now()) > 0:
            await self._bell.wait(left)
