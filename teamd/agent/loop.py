"""A teammate's loop: take mail, ask the model, run tools, write down, and wait."""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from teamd.agent.conversation import prompts
from teamd.agent.conversation.compaction import Compaction
from teamd.agent.conversation.state import CUT_OFF_REASONS
from teamd.agent.delivery import Delivery
from teamd.errors import StoreError
from teamd.messages import COMPACT_TYPE, again
from teamd.models import LimitError, UnusableError
from teamd.states import Status
from teamd.tools import Result
from teamd.transcript.records import INTERRUPTED, LIMIT, PAUSED, NoticeSent

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from teamd.agent.environment import Environment, Equipment
    from teamd.models import Block

T = TypeVar("T")
_DIGITS: Final = re.compile(r"\d+")
_OUTAGE: Final = "an outage"


class TurnCancelled(Exception):
    """A person has cancelled what was under way."""


class Cancellation:
    """Runs one piece of work at a time, until a person cancels it."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel what is under way, if anything is."""
        if self._running is not None:
            self._cancelled = True
            self._running.cancel()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, and return what it returns.

        Raises:
            TurnCancelled: a person has cancelled it. A caller that is cancelled itself as well,
                such as to end the process, gets its own cancellation.
        """
        self._cancelled = False
        running: asyncio.Future[T] = asyncio.ensure_future(work)
        self._running = running
        try:
            return await running
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if self._cancelled and not (me and me.cancelling()):
                raise TurnCancelled from None
            raise
        finally:
            running.cancel()  # a caller that is cancelled itself leaves nothing running behind
            self._running = None


@dataclass(slots=True)
class Loop:
    """One teammate at work.

    Attributes:
        compaction: asks the model for the next reply of the conversation.
    """

    env: Environment
    equipment: Equipment
    delivery: Delivery
    compaction: Compaction
    _turn: Cancellation = field(default_factory=Cancellation)

    async def run(self) -> None:
        """Live until cancelled."""
        while True:
            self._send_notices()
            self.env.wakeup.reset()  # before the look, so that no wake-up is lost between the two
            if not self.env.shutdown.agreed():
                self._deliver()
            if self._shuts_down():
                self.env.shutdown.carry_out()
                await self.env.wakeup.wait()  # for the supervisor to end it
                continue
            if not (self.env.conversation.owes_reply or self.env.conversation.unfollowed):
                if self.equipment.claim():
                    continue
                self.env.reporter.report(Status.IDLE)
                await self.env.wakeup.wait()
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
        return self.env.shutdown.due(more_mail=self.env.mailbox.waiting())

    async def _work(self) -> None:
        """Go on until the model ends its turn or the calls of one wake are used up.

        What an earlier process was in the middle of is done to its end in the same way.
        """
        self.equipment.calls.renew()
        while True:
            if self.env.conversation.unfollowed and await self._follow():
                return
            if self.env.shutdown.agreed():
                return
            if not self.equipment.calls.take():
                break
            self.env.reporter.report(Status.WORKING)
            reply = await self._turn.run(self.compaction.reply(self._deliver))
            self.env.conversation.add_reply(reply)
        name = self.env.name
        notice = (
            f"{name} stopped after {self.equipment.calls.most} model calls without ending its "
            f"turn and is idle now; send {name} a message to let it go on"
        )
        self.env.conversation.end_turn(LIMIT, "", notice=notice)

    async def _follow(self) -> bool:
        """Do what the last reply asks for; return whether the turn has ended."""
        conversation = self.env.conversation
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
        if call["id"] in self.env.conversation.begun and not self.equipment.toolbox.repeats(
            call["name"]
        ):
            return Result(text=prompts.INTERRUPTED_CALL, is_error=True)
        key = self.env.conversation.begin_call(call)
        granted = self.env.conversation.opened.tools
        return await self.equipment.toolbox.run(
            call["name"], call["input"], key=key, granted=granted
        )

    def _fail_calls(self, why: str) -> None:
        for call in self.env.conversation.unanswered:
            self.env.conversation.add_result(call, Result(text=why, is_error=True))

    def _end_cancelled(self) -> None:
        """Leave the conversation as one that the API takes, and the turn as ended."""
        self._fail_calls(prompts.BROKEN_OFF_CALL)
        self.env.conversation.end_turn(INTERRUPTED, "")

    def _end_turn(self) -> None:
        reason = self.env.conversation.stop_reason
        notice = ""
        if reason == "refusal":
            name = self.env.name
            notice = (
                f"the model of {name} refused to go on with what it was asked; "
                f"ask differently, or begin anew with {again(name, '--fresh')}"
            )
        self.env.conversation.end_turn(reason, self.env.conversation.said, notice=notice)

    async def _pause(self, error: UnusableError) -> None:
        """Wait for a person to mend it: the next mail, or later by oneself, is the next try.

        At a limit there is none until it was raised, and a person has said that it goes on.
        """
        about = pause_reason(error)
        known = about == self.env.conversation.paused_about  # maybe from an earlier process
        notice = "" if known else f"{self.env.name} is paused: {error}"
        self.env.conversation.end_turn(PAUSED, str(error), about=about, notice=notice)
        self.env.reporter.report(Status.PAUSED, str(error))
        await self._rest(error.again_in_seconds, self._end_of_pause(error))

    def _end_of_pause(self, error: UnusableError) -> Callable[[], bool]:
        # At a limit mail waits where it is, unless it asks to shut down.
        if isinstance(error, LimitError):
            return lambda: error.lifted() or self.env.shutdown.requested()
        return self.env.mailbox.waiting

    async def _rest(self, seconds: float | None, over: Callable[[], bool]) -> None:
        """Wait until it is over, or for so many seconds, or until it shuts down."""
        now = asyncio.get_running_loop().time
        until = math.inf if seconds is None else now() + seconds
        self._send_notices()
        while not (over() or self._shuts_down()) and (left := until - now()) > 0:
            await self.env.wakeup.wait(left)
            self._send_notices()

    def _send_notices(self) -> None:
        """Send what the lead is owed; what cannot be sent now is sent at a later look.

        It stands in the conversation until then, and goes under one id however often it is sent.
        """
        for key, text in list(self.env.conversation.unsent.items()):
            try:
                self.env.reporter.notify_lead(text, key=key)
            except StoreError:  # the lead's inbox is locked, or the disk full
                return
            self.env.conversation.record(NoticeSent(id=key))


def build_loop(env: Environment, equipment: Equipment) -> Loop:
    """Put a teammate together; nothing of it runs yet."""
    compaction = Compaction(
        conversation=env.conversation,
        model=equipment.model,
        toolbox=equipment.toolbox,
        settings=env.settings.model,
        model_name=equipment.model_name,
        asker=env.name,
        open_work=equipment.open_work,
    )
    return Loop(env, equipment, Delivery(env, equipment), compaction)


def pause_reason(error: UnusableError) -> str:
    """Return what all sentences about the same trouble have in common: the lead is told once."""
    if isinstance(error, LimitError):
        return error.key  # others' calls change its figures
    if error.again_in_seconds is not None:
        return _OUTAGE  # it fails in another way each time, and ends without anybody's help
    return _DIGITS.sub("0", str(error))  # a conversation that is too long grows with each mail
