"""A teammate's loop: take mail, ask the model, run tools, write down, and wait."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from teamd.agent import prompts
from teamd.agent.breaking import Breakable, BrokenOffError
from teamd.agent.briefing import NothingOpen
from teamd.agent.compaction import Compaction
from teamd.agent.complaints import gist
from teamd.agent.course import CUT_OFF_REASONS
from teamd.agent.gauge import Room
from teamd.agent.standing import LIMIT, PAUSED
from teamd.errors import StoreError
from teamd.models import Ask, LimitError, UnusableError
from teamd.protocol import COMPACT_TYPE
from teamd.remedies import again
from teamd.states import Status
from teamd.tools import Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from teamd.agent.allowance import Allowance
    from teamd.agent.bell import Bell
    from teamd.agent.briefing import OpenWork
    from teamd.agent.conversation import Conversation
    from teamd.agent.intake import Intake
    from teamd.agent.leaving import Leaving
    from teamd.models import Block, Model
    from teamd.tools import Toolbox

    class Outside(Protocol):
        """What a teammate says of itself, and to whom."""

        def report(self, status: Status, reason: str | None = None) -> None:
            """Tell the supervisor how it goes."""

        def tell_lead(self, text: str, *, key: str) -> None:
            """Send the lead a line under an id."""


INTERRUPTED = "interrupted"


class Loop:
    """One teammate at work.

    Args:
        name: the teammate's.
        intake: brings mail and news into the conversation.
        model_name: asked at each call, with what the conversation's role asks for.
        fetch: looks for work where there is no mail; says whether there is some now.
        calls: what one wake may take; its foreground subagents take from it as well.
        max_tokens: per reply.
        room: how long a conversation may become.
        open_work: what a summary of it restates.
    """

    def __init__(
        self,
        *,
        name: str,
        intake: Intake,
        model_name: Callable[[str | None], str],
        conversation: Conversation,
        model: Model,
        toolbox: Toolbox,
        bell: Bell,
        outside: Outside,
        fetch: Callable[[], bool],
        leaving: Leaving,
        calls: Allowance,
        max_tokens: int,
        room: Room | None = None,
        open_work: OpenWork | None = None,
    ) -> None:
        self._name = name
        self._intake = intake
        self._model_name = model_name
        self._conversation = conversation
        self._toolbox = toolbox
        self._bell = bell
        self._outside = outside
        self._fetch = fetch
        self._leaving = leaving
        self._calls = calls
        self._max_tokens = max_tokens
        self._breakable = Breakable()
        self._compaction = Compaction(
            conversation, model, room=room or Room(), work=open_work or NothingOpen()
        )

    async def run(self) -> None:
        """Live until cancelled."""
        while True:
            self._tell_lead()
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
            except BrokenOffError:
                self._break_off()

    def interrupt(self) -> None:
        """Break off the turn that is under way, if there is one; the teammate lives on."""
        self._breakable.break_off()

    def _deliver(self) -> None:
        if any(message.type == COMPACT_TYPE for message in self._intake.deliver()):
            self._compaction.want()

    def _leaves(self) -> bool:
        return self._leaving.ready(more_mail=self._intake.waiting())

    async def _work(self) -> None:
        """One wake: go on until the model ends its turn or the calls are used up.

        What an earlier process was in the middle of is done to its end in the same way.
        """
        self._calls.renew()
        while True:
            if self._conversation.unfollowed and await self._follow():
                return
            if self._leaving.agreed():
                return
            if not self._calls.take():
                break
            self._outside.report(Status.WORKING)
            reply = await self._breakable.run(self._compaction.reply(self._ask, self._deliver))
            self._conversation.add_reply(reply)
        notice = (
            f"{self._name} stopped after {self._calls.most} model calls without ending its "
            f"turn and is idle now; send {self._name} a message to let it go on"
        )
        self._conversation.end_turn(LIMIT, "", notice=notice)

    def _ask(self) -> Ask:
        return Ask(
            model=self._model_name(self._conversation.model),
            system=self._conversation.system,
            tools=self._toolbox.schemas(self._conversation.tools),
            messages=self._conversation.messages(),
            max_tokens=self._max_tokens,
            asker=self._name,
        )

    async def _follow(self) -> bool:
        """Do what the last reply asks for; returns whether the turn has ended."""
        talk = self._conversation
        calls = talk.unanswered
        if calls and talk.stop_reason == "tool_use":
            for call in calls:
                talk.add_result(call, await self._breakable.run(self._run(call)))
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

    def _break_off(self) -> None:
        """Leave the conversation as one that the API takes, and the turn as ended."""
        for call in self._conversation.unanswered:
            self._conversation.add_result(call, Result(text=prompts.BROKEN_OFF_CALL, is_error=True))
        self._conversation.end_turn(INTERRUPTED, "")

    def _end(self) -> None:
        reason = self._conversation.stop_reason
        notice = ""
        if reason == "refusal":
            notice = (
                f"the model of {self._name} refused to go on with what it was asked; "
                f"ask differently, or begin anew with {again(self._name, '--fresh')}"
            )
        self._conversation.end_turn(reason, self._conversation.said, notice=notice)

    async def _pause(self, error: UnusableError) -> None:
        """Wait for a person to mend it: the next mail, or later by oneself, is the next try.

        At a limit there is none until it was raised, and a person has said that it goes on.
        """
        about = gist(error)
        known = about == self._conversation.paused_about  # maybe from an earlier process
        notice = "" if known else f"{self._name} is paused: {error}"
        self._conversation.end_turn(PAUSED, str(error), about=about, notice=notice)
        self._outside.report(Status.PAUSED, str(error))
        await self._rest(error.again_in_seconds, self._end_of(error))

    def _end_of(self, error: UnusableError) -> Callable[[], bool]:
        """What ends a pause. At a limit mail waits where it is, unless it asks to shut down."""
        if isinstance(error, LimitError):
            return lambda: error.lifted() or self._leaving.asked()
        return self._intake.waiting

    async def _rest(self, seconds: float | None, over: Callable[[], bool]) -> None:
        """Wait until it is over, or for so many seconds, or until it leaves."""
        now = asyncio.get_running_loop().time
        until = math.inf if seconds is None else now() + seconds
        self._tell_lead()
        while not (over() or self._leaves()) and (left := until - now()) > 0:
            await self._bell.wait(left)
            self._tell_lead()

    def _tell_lead(self) -> None:
        """Send what the lead is owed; what cannot be sent now is sent at a later look.

        It stands in the conversation until then, and goes under one id however often it is sent.
        """
        for key, text in list(self._conversation.untold.items()):
            try:
                self._outside.tell_lead(text, key=key)
            except StoreError:  # the lead's inbox is locked, or the disk full
                return
            self._conversation.note_told(key)
