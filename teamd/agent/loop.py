"""A teammate's loop: take mail, ask the model, run tools, write down, and wait."""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from teamd.agent.cancellation import Cancellation, TurnCancelled
from teamd.agent.conversation import prompts
from teamd.agent.conversation.state import CUT_OFF_REASONS
from teamd.errors import StoreError
from teamd.hints import again
from teamd.messages import COMPACT_TYPE
from teamd.models import LimitError, UnusableError
from teamd.states import Status
from teamd.tools import Result
from teamd.transcript.records import INTERRUPTED, LIMIT, PAUSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.agent.conversation.compaction import Compaction
    from teamd.agent.conversation.conversation import Conversation
    from teamd.agent.delivery import Delivery
    from teamd.agent.reporting import Reporter
    from teamd.agent.shutdown import Shutdown
    from teamd.agent.wakeup import CallBudget, Wakeup
    from teamd.models import Block
    from teamd.tools import Toolbox

_DIGITS: Final = re.compile(r"\d+")
_OUTAGE: Final = "an outage"


@dataclass(kw_only=True, slots=True)
class Loop:
    """One teammate at work.

    Attributes:
        compaction: asks the model for the next reply of the conversation.
        calls: what one wake may take; its foreground subagents take from it as well.
    """

    conversation: Conversation
    compaction: Compaction
    toolbox: Toolbox
    delivery: Delivery
    shutdown: Shutdown
    reporter: Reporter
    wakeup: Wakeup
    calls: CallBudget
    _turn: Cancellation = field(default_factory=Cancellation)

    async def run(self) -> None:
        """Live until cancelled."""
        while True:
            self._send_notices()
            self.wakeup.reset()  # before the look, so that no wake-up is lost between the two
            if not self.shutdown.agreed():
                self._deliver()
            if self._shuts_down():
                self.shutdown.carry_out()
                await self.wakeup.wait()  # for the supervisor to end it
                continue
            if not (self.conversation.owes_reply or self.conversation.unfollowed):
                if self.delivery.claim():
                    continue
                self.reporter.report(Status.IDLE)
                await self.wakeup.wait()
                continue
            try:
                await self._work()
            except UnusableError as error:
                await self._pause(error)
            except TurnCancelled:
                self._end_cancelled()

    def interrupt(self) -> None:
        """Cancel the turn that is under way, if there is one; the teammate lives on."""
        self._turn.cancel()

    def _deliver(self) -> None:
        if any(message.type == COMPACT_TYPE for message in self.delivery.deliver()):
            self.compaction.request()

    def _shuts_down(self) -> bool:
        return self.shutdown.due(more_mail=self.delivery.mailbox.waiting())

    async def _work(self) -> None:
        """Go on until the model ends its turn or the calls of one wake are used up.

        What an earlier process was in the middle of is done to its end in the same way.
        """
        self.calls.renew()
        while True:
            if self.conversation.unfollowed and await self._follow():
                return
            if self.shutdown.agreed():
                return
            if not self.calls.take():
                break
            self.reporter.report(Status.WORKING)
            reply = await self._turn.run(self.compaction.reply(self._deliver))
            self.conversation.add_reply(reply)
        name = self.reporter.name
        notice = (
            f"{name} stopped after {self.calls.most} model calls without ending its "
            f"turn and is idle now; send {name} a message to let it go on"
        )
        self.conversation.end_turn(LIMIT, "", notice=notice)

    async def _follow(self) -> bool:
        """Do what the last reply asks for; return whether the turn has ended."""
        conversation = self.conversation
        calls = conversation.unanswered
        if calls and conversation.stop_reason == "tool_use":
            for call in calls:
                conversation.add_result(call, await self._turn.run(self._run(call)))
            return False
        self._fail_calls(prompts.CUT_OFF_CALL)
        if conversation.stop_reason in CUT_OFF_REASONS and not calls:
            conversation.add_note(prompts.CUT_OFF_REPLY)
        if conversation.owes_reply:
            return False
        self._end_turn()
        return True

    async def _run(self, call: Block) -> Result:
        """Run a tool call, unless an earlier process began it and it must not be repeated."""
        if call["id"] in self.conversation.begun and not self.toolbox.repeats(call["name"]):
            return Result(text=prompts.INTERRUPTED_CALL, is_error=True)
        key = self.conversation.begin_call(call)
        granted = self.conversation.opened.tools
        return await self.toolbox.run(call["name"], call["input"], key=key, granted=granted)

    def _fail_calls(self, why: str) -> None:
        for call in self.conversation.unanswered:
            self.conversation.add_result(call, Result(text=why, is_error=True))

    def _end_cancelled(self) -> None:
        """Leave the conversation as one that the API takes, and the turn as ended."""
        self._fail_calls(prompts.BROKEN_OFF_CALL)
        self.conversation.end_turn(INTERRUPTED, "")

    def _end_turn(self) -> None:
        reason = self.conversation.stop_reason
        notice = ""
        if reason == "refusal":
            name = self.reporter.name
            notice = (
                f"the model of {name} refused to go on with what it was asked; "
                f"ask differently, or begin anew with {again(name, '--fresh')}"
            )
        self.conversation.end_turn(reason, self.conversation.said, notice=notice)

    async def _pause(self, error: UnusableError) -> None:
        """Wait for a person to mend it: the next mail, or later by oneself, is the next try.

        At a limit there is none until it was raised, and a person has said that it goes on.
        """
        about = pause_reason(error)
        known = about == self.conversation.paused_about  # maybe from an earlier process
        notice = "" if known else f"{self.reporter.name} is paused: {error}"
        self.conversation.end_turn(PAUSED, str(error), about=about, notice=notice)
        self.reporter.report(Status.PAUSED, str(error))
        await self._rest(error.again_in_seconds, self._end_of_pause(error))

    def _end_of_pause(self, error: UnusableError) -> Callable[[], bool]:
        # At a limit mail waits where it is, unless it asks to shut down.
        if isinstance(error, LimitError):
            return lambda: error.lifted() or self.shutdown.requested()
        return self.delivery.mailbox.waiting

    async def _rest(self, seconds: float | None, over: Callable[[], bool]) -> None:
        """Wait until it is over, or for so many seconds, or until it shuts down."""
        now = asyncio.get_running_loop().time
        until = math.inf if seconds is None else now() + seconds
        self._send_notices()
        while not (over() or self._shuts_down()) and (left := until - now()) > 0:
            await self.wakeup.wait(left)
            self._send_notices()

    def _send_notices(self) -> None:
        """Send what the lead is owed; what cannot be sent now is sent at a later look.

        It stands in the conversation until then, and goes under one id however often it is sent.
        """
        for key, text in list(self.conversation.unsent.items()):
            try:
                self.reporter.notify_lead(text, key=key)
            except StoreError:  # the lead's inbox is locked, or the disk full
                return
            self.conversation.note_sent(key)


def pause_reason(error: UnusableError) -> str:
    """Return what all sentences about the same trouble have in common: the lead is told once."""
    if isinstance(error, LimitError):
        return error.key  # others' calls change its figures
    if error.again_in_seconds is not None:
        return _OUTAGE  # it fails in another way each time, and ends without anybody's help
    return _DIGITS.sub("0", str(error))  # a conversation that is too long grows with each mail
