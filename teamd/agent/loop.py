"""A teammate's loop: take mail, ask the model, run tools, record the results, and wait."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

from teamd import clocks
from teamd.agent.conversation.compaction import Compaction
from teamd.agent.delivery import Delivery
from teamd.agent.environment import Environment
from teamd.agent.turn import STOPPED, Cancellation, Repeats, TurnCancelled, follow
from teamd.agent.wakeup import CallBudget
from teamd.errors import StoreError, TeamError
from teamd.messages import respawn_command
from teamd.models import LimitError, UnusableError
from teamd.team.states import Status
from teamd.tools import PermissionPending
from teamd.transcript.records import LIMIT, PAUSED, REPEATED, NoticeSent

_DIGITS: Final = re.compile(r"\d+")
_OUTAGE: Final = "an outage"
_PAUSE: Final = "a pause"
_RETRY_SECONDS: Final = 1.0


@dataclass(kw_only=True, slots=True)
class Loop:
    """One teammate at work.

    Attributes:
        compaction: asks the model, and has the tools that it may use.
        delivery: puts mail and news into the conversation.
        turn: runs a turn piece by piece, and may cancel it.
        claim: looks for work if there is no mail; returns whether mail about work waits now.
        calls: the model calls of one wake.
        busy: returns whether the process owns work that would end with it, such as a job.
        learn_key: tells the mask the key, since mail or a tool may show it before the first call.
    """

    env: Environment
    compaction: Compaction
    delivery: Delivery
    turn: Cancellation
    claim: Callable[[], bool]
    calls: CallBudget
    busy: Callable[[], bool]
    learn_key: Callable[[], Awaitable[None]] | None = None
    _worked_at: float = field(default_factory=clocks.awake)
    _just_delivered: bool = False
    _repeats: Repeats = field(init=False)

    def __post_init__(self) -> None:
        self._repeats = Repeats(self.compaction.toolbox)

    async def run(self) -> None:
        """Run until cancelled; return when it may hibernate, with its whole state on disk."""
        while True:
            self._send_notices()
            self.env.wakeup.reset()  # before the look, so that no wake-up is lost between the two
            await self._learn_key()
            if (why := self._paused()) is not None:
                await self._rest_until_resumed(why)
                continue
            if delivers := not self.env.shutdown.agreed():
                self.delivery.deliver()
                self._send_notices()  # to those whose mail is held
            self._just_delivered = delivers
            if self._shuts_down():
                self.env.shutdown.carry_out()
                await self._wait()  # for the supervisor to end it
            elif self._under_way:
                await self._take_turn()
                self._worked_at = clocks.awake()
            elif not self.claim():
                self._report(Status.IDLE, self.delivery.hold.reason)
                if (left := self._seconds_awake()) <= 0:
                    return
                await self._wait(min(left, _RETRY_SECONDS) if self._owes_notices else left)

    def _seconds_awake(self) -> float:
        """Return the seconds until it hibernates; infinite while anything is left to do."""
        seconds = self.env.settings.supervision.hibernate_seconds
        if not seconds or self._owes_notices or self.env.mailbox.waiting() or self.busy():
            return math.inf
        return self._worked_at + seconds - clocks.awake()

    def interrupt(self) -> None:
        """Cancel the current turn if mail says so; the teammate lives on.

        The signal alone proves nothing: it may arrive after that mail was read, in another turn.
        """
        try:
            by = self.delivery.find_interrupt()
        except StoreError:  # a locked inbox
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self.interrupt)
        else:
            if by is not None:
                self.turn.cancel(by)

    def _deliver(self) -> None:
        """Deliver mail since the last look, unless that was a moment ago."""
        if not self._just_delivered:
            self.delivery.deliver()
            self._send_notices()  # to those whose mail is held
            if self.env.conversation.new_mail:
                self._repeats.forget()
        self._just_delivered = False

    async def _learn_key(self) -> None:
        """Learn the key once, when there is work: a person may have to unlock it."""
        if self.learn_key is None or self._paused() is not None:
            return
        if self._under_way or self.env.mailbox.waiting():
            learn, self.learn_key = self.learn_key, None
            await learn()

    def _shuts_down(self) -> bool:
        return self.env.shutdown.due(more_mail=self.env.mailbox.waiting, paused=self._is_paused)

    def _is_paused(self) -> bool:
        return self.env.pause.why() is not None

    def _paused(self) -> str | None:
        """Return why it rests until it is resumed; a requested shutdown still proceeds."""
        why, shutdown = self.env.pause.why(), self.env.shutdown
        return None if why is None or shutdown.agreed() or shutdown.requested() else why

    async def _rest_until_resumed(self, why: str) -> None:
        """Rest at the end of a step; the turn stays open, and mail waits."""
        conversation = self.env.conversation
        known = conversation.paused and conversation.paused_about == _PAUSE
        if self._under_way and not known:
            conversation.end_turn(PAUSED, why, about=_PAUSE)
        self._report(Status.PAUSED, why)
        await self._rest(math.inf, lambda: self._paused() is None)
        if self._under_way:
            self._report(Status.WORKING)

    @property
    def _under_way(self) -> bool:
        return self.env.conversation.owes_reply or self.env.conversation.unfollowed

    async def _take_turn(self) -> None:
        try:
            try:
                await self._work()
            except UnusableError as error:
                await self._pause(error)
            except PermissionPending as pending:
                await self._await_answer(pending)
        except TurnCancelled as cancelled:  # of the work, or of the waiting
            self.delivery.break_off(cancelled.by)

    async def _work(self) -> None:
        """Continue until the model ends its turn or the calls of one wake are used up.

        A turn that an earlier process left unfinished is completed in the same way.
        """
        self.calls.renew()
        self._repeats = Repeats(self.compaction.toolbox)
        while True:
            if self.env.conversation.unfollowed:
                self._just_delivered = False
                if await self._follow():
                    return
                if self.env.shutdown.agreed() or self._paused() is not None:
                    return
            if not self.calls.take():
                self._end_at_limit()
                return
            self._report(Status.WORKING)
            reply = await self.turn.run(self.compaction.reply(self._deliver))
            self.env.conversation.add_reply(reply)
            if self._paused() is not None:
                return

    def _end_at_limit(self) -> None:
        made = f"{self.calls.most} model calls without ending its turn"
        self._stop(LIMIT, f"stopped after {made}")

    def _end_repeating(self) -> None:
        made = f"the same call of {self._repeats.stuck_at} {STOPPED} times in a turn"
        self._stop(REPEATED, f"was stopped since it made {made}, with nothing new,")

    def _stop(self, outcome: str, why: str) -> None:
        name = self.env.name
        notice = f"{name} {why} and is idle now; send {name} a message to make it continue"
        self.env.conversation.end_turn(outcome, "", notice=notice)

    async def _follow(self) -> bool:
        """Carry out the last reply; return whether the turn has ended."""
        show = self.env.presence.begin_tool
        await follow(self.compaction, self.turn.run, self._repeats, show)
        if self._repeats.stuck_at:
            self._end_repeating()
            return True
        if self.env.conversation.owes_reply:
            return False
        self._end_turn()
        return True

    def _end_turn(self) -> None:
        conversation, name, notice = self.env.conversation, self.env.name, ""
        if conversation.stop_reason == "refusal":
            refused = f"the model of {name} refused to go on with what it was asked"
            notice = (
                f"{refused}; ask differently, or start over with {respawn_command(name, '--fresh')}"
            )
        conversation.end_turn(conversation.stop_reason, conversation.said, notice=notice)

    async def _pause(self, error: UnusableError) -> None:
        """Wait for a person's help; try again at the next mail, or after some time.

        A time that the server gave is kept, whatever mail comes. At a limit it tries again when
        a person has raised the limit and resumed the teammate, or when the limit's period is over.
        """
        about = pause_reason(error)
        known = about == self.env.conversation.paused_about  # maybe from an earlier process
        notice = "" if known else f"{self.env.name} is paused: {error}"
        self.env.conversation.end_turn(PAUSED, str(error), about=about, notice=notice)
        self._report(Status.PAUSED, str(error), until=error.until, remedy=error.command)
        self._send_notices()
        seconds = math.inf if error.again_in_seconds is None else error.again_in_seconds
        await self.turn.run(self._rest(seconds, self._end_of_pause(error)))

    async def _await_answer(self, pending: PermissionPending) -> None:
        """Wait for a person's answer in the middle of a turn; mail waits in the inbox.

        Then the same call is made again, as in a process that replaces a killed one.
        """
        env = self.env
        if not (env.conversation.paused and env.conversation.paused_about == pending.request):
            env.conversation.end_turn(PAUSED, str(pending), about=pending.request)
        self._report(Status.PAUSED, str(pending), until=pending.deadline)

        def over() -> bool:
            asked = env.shutdown.requested() and env.mailbox.waiting()
            return env.permissions.answered(pending.request) or asked

        with env.wakeup.watching(env.paths.requests):
            await self.turn.run(self._rest(pending.deadline - time.time(), over))
        env.reporter.report(Status.WORKING)

    def _report(
        self,
        status: Status,
        reason: str | None = None,
        *,
        until: float | None = None,
        remedy: str = "",
    ) -> None:
        """Publish the teammate's new status, and report it to the supervisor."""
        model = self.compaction.model_asked if status is Status.WORKING else None
        self.env.presence.go_on(model, self.compaction.fill)
        self.env.reporter.report(status, reason, until=until, remedy=remedy)

    def _end_of_pause(self, error: UnusableError) -> Callable[[], bool]:
        # At a limit mail stays in the inbox, unless it asks to shut down.
        if isinstance(error, LimitError):
            return lambda: error.lifted() or self.env.shutdown.requested()
        if error.by_server:
            return self.env.shutdown.requested
        return lambda: self.env.mailbox.waiting() and not self.delivery.hold.holds()

    def _rest(self, seconds: float, over: Callable[[], bool]) -> Coroutine[None, None, None]:
        """Wait until `over` returns true, or for this many seconds, or until a shutdown."""
        # By a clock that goes on while the machine is suspended: a server's time does.
        return self._rest_until(clocks.Deadline.after(seconds), over)

    async def _rest_until(self, end: clocks.Deadline, over: Callable[[], bool]) -> None:
        self._send_notices()
        while not (over() or self._shuts_down()) and (left := end.left) > 0:
            await self._wait(min(left, _RETRY_SECONDS) if self._owes_notices else left)
            self._send_notices()

    async def _wait(self, seconds: float = math.inf) -> None:
        await self.env.wakeup.wait(seconds)

    @property
    def _owes_notices(self) -> bool:
        return bool(self.env.conversation.unsent)

    def _send_notices(self) -> None:
        """Send owed notices to the lead and others; a failed one is tried again at a later look.

        A notice is in the conversation until it is sent, and keeps its id, so that it is read once.
        """
        for key, notice in list(self.env.conversation.unsent.items()):
            try:
                self.env.reporter.notify(notice.text, key=key, to=notice.to)
            except StoreError:  # an inbox is locked, or the disk full
                return
            except TeamError as error:  # a receiver that left the team is owed nothing
                self.env.journal.error("notice not sent", error, to=notice.to)
            self.env.conversation.record(NoticeSent(id=key))


def pause_reason(error: UnusableError) -> str:
    """Return a text shared by all reports of the same problem, so that the lead is told once."""
    if isinstance(error, LimitError):
        return error.key  # others' calls change its figures
    if error.about:
        return error.about
    if error.again_in_seconds is not None:
        return _OUTAGE  # it fails in another way each time, and ends without anybody's help
    return _DIGITS.sub("0", str(error))  # a conversation that is too long grows with each mail
