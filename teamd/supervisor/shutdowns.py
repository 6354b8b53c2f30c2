"""The shutdowns of one team: requested, forced, checked, and resumed after a kill.

Requests and answers are in the store. This module only knows who waits for them and until when. So
the successor of a killed supervisor goes on with the same shutdowns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from teamd.approvals.approval import Approval, Kind, NoSuchApproval, Verdict
from teamd.approvals.store import Approvals
from teamd.clocks import Deadline
from teamd.errors import ExitCode, StoreError, TeamError
from teamd.journal import LoggedEvent
from teamd.supervisor.children import Children
from teamd.supervisor.lifecycle import EndNotice, State
from teamd.team.states import Status

Then = Callable[["ShutdownOutcome"], None]

FORCE_AFTER_SECONDS: Final = 2.0  # a process that can end after SIGTERM does so in less
AGAIN_SECONDS: Final = 1.0
ALIVE: Final = (State.RUNNING, State.STUCK)  # a stuck teammate may recover before its deadline


class ShutdownState(Enum):
    """The state of a shutdown."""

    ASKED = auto()
    ENDING = auto()  # the process is being ended
    ENDED = auto()  # the process has ended; that is not recorded yet
    CLOSED = auto()


class ShutdownEvent(Enum):
    """The events of a shutdown."""

    APPROVED = auto()
    REJECTED = auto()
    EXPIRED = auto()  # the deadline has passed without an answer, or there is no process
    FORCED = auto()  # the end is wanted at once
    STOPPED = auto()  # the process has ended
    LOOKED = auto()  # it is time to try again to record the end
    SETTLED = auto()  # the end is recorded


class ShutdownAction(Enum):
    """The supervisor's answer to an event."""

    NOTHING = auto()
    END = auto()  # end the process, first with SIGTERM
    HURRY = auto()  # end it sooner
    TELL = auto()  # call those that wait for the outcome
    TELL_AND_SETTLE = auto()
    SETTLE = auto()  # record that it has ended


_S, _E, _A = ShutdownState, ShutdownEvent, ShutdownAction

# Events that are not listed for a state change nothing.
_STEPS: Final = {
    (_S.ASKED, _E.APPROVED): (_S.ENDING, _A.END),
    (_S.ASKED, _E.REJECTED): (_S.CLOSED, _A.TELL),
    (_S.ASKED, _E.EXPIRED): (_S.ENDING, _A.END),
    (_S.ASKED, _E.FORCED): (_S.ENDING, _A.END),
    (_S.ENDING, _E.FORCED): (_S.ENDING, _A.HURRY),
    (_S.ENDING, _E.STOPPED): (_S.ENDED, _A.TELL_AND_SETTLE),
    (_S.ENDED, _E.FORCED): (_S.ENDED, _A.TELL),
    (_S.ENDED, _E.LOOKED): (_S.ENDED, _A.SETTLE),
    (_S.ENDED, _E.SETTLED): (_S.CLOSED, _A.NOTHING),
}


def next_shutdown_step(
    state: ShutdownState, event: ShutdownEvent
) -> tuple[ShutdownState, ShutdownAction]:
    """Return the next state, and the action to take."""
    return _STEPS.get((state, event), (state, ShutdownAction.NOTHING))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownOutcome:
    """The outcome of one teammate's shutdown.

    Attributes:
        verdict: on the request; `None` if the teammate was not asked.
        reason: given by the teammate.
    """

    name: str
    text: str
    exit_code: ExitCode = ExitCode.DONE
    verdict: Verdict | None = None
    reason: str = ""

    def with_force(self) -> ShutdownOutcome:
        """Return this outcome for a process that did not end in time and was killed."""
        text = f"{self.name} did not end in time and was killed"
        if self.verdict is Verdict.APPROVED:
            text = f"{self.name} approved, but did not end in time and was killed"
        if self.verdict is Verdict.EXPIRED:
            text = self.text.removesuffix("ended") + "killed"
        return replace(self, text=text, exit_code=ExitCode.DEADLINE)

    @classmethod
    def down(cls, name: str) -> ShutdownOutcome:
        """Return the outcome for a teammate without a process to ask."""
        return cls(name=name, text=f"{name} is shut down")

    @classmethod
    def answered(cls, approval: Approval) -> ShutdownOutcome:
        """Return the outcome for a teammate's answer."""
        name, reason = approval.to, approval.reason
        if approval.status is Verdict.APPROVED:
            text, code = f"{name} approved and is shut down", ExitCode.DONE
        else:
            text, code = f"{name} rejected the shutdown and goes on", ExitCode.REFUSED
        text += f": {reason}" if reason else ""
        return cls(name=name, text=text, exit_code=code, verdict=approval.status, reason=reason)

    @classmethod
    def overdue(cls, name: str, seconds: float) -> ShutdownOutcome:
        """Return the outcome for a teammate that did not answer in time."""
        text = f"{name} did not answer within {seconds:g} s and was ended"
        return cls(name=name, text=text, exit_code=ExitCode.DEADLINE, verdict=Verdict.EXPIRED)


def from_now(seconds: float) -> Deadline:
    """Return a deadline by a clock that is never set back and stops while the machine sleeps."""
    return Deadline.after(seconds, time.monotonic)


@dataclass(slots=True)
class Shutdown:
    """One teammate's shutdown; the request and the answer are in the store of approvals."""

    approvals: Approvals
    children: Children
    name: str
    due: Deadline  # for the answer
    seconds: float  # from the request to the deadline
    id: str = ""  # of the approval; empty if the teammate is not asked
    waiting: list[Then] = field(default_factory=list)  # called with the outcome
    state: ShutdownState = ShutdownState.ASKED
    answered: bool = False  # the teammate has reported an answer, and has saved everything
    outcome: ShutdownOutcome | None = None
    retry: Deadline | None = None  # after a failed look

    def look(self) -> None:
        """Check whether the teammate has answered or the deadline has passed.

        Raises:
            TeamError: the store cannot be read or written.
        """
        self.retry = None
        if self.outcome is not None:
            self.step(ShutdownEvent.LOOKED, self.outcome)
        if self.state is not ShutdownState.ASKED:
            return
        left = self.due.left
        running = self.children.state(self.name) in ALIVE
        verdict, approval = self._verdict(expire=left <= 0)
        if verdict is Verdict.APPROVED and approval and (self.answered or not running or left <= 0):
            seconds = max(left, FORCE_AFTER_SECONDS)
            self.step(ShutdownEvent.APPROVED, ShutdownOutcome.answered(approval), seconds)
        elif verdict is Verdict.REJECTED and approval:
            self.children.journal.note(
                LoggedEvent.SHUTDOWN_REJECTED, name=self.name, reason=approval.reason
            )
            self.step(ShutdownEvent.REJECTED, ShutdownOutcome.answered(approval))
        elif verdict is Verdict.EXPIRED:
            late = ShutdownOutcome.overdue(self.name, self.seconds)
            self.step(ShutdownEvent.EXPIRED, late, FORCE_AFTER_SECONDS)

    def step(self, event: ShutdownEvent, wanted: ShutdownOutcome, seconds: float = 0.0) -> None:
        """Follow the table towards this outcome; the process has this many seconds to end."""
        self.state, action = next_shutdown_step(self.state, event)
        match action:
            case ShutdownAction.END:
                self._end(wanted, seconds)
            case ShutdownAction.HURRY:
                self._stop(wanted, seconds)
            case ShutdownAction.TELL:
                self._tell(self.outcome or wanted)
            case ShutdownAction.TELL_AND_SETTLE:
                self.outcome = wanted
                self._tell(wanted)
                self._settle(wanted)
            case ShutdownAction.SETTLE:
                self._settle(wanted)
            case ShutdownAction.NOTHING:
                pass

    def join(self, seconds: float, then: Then) -> None:
        """Add a waiting caller; the earlier of two deadlines counts."""
        self.waiting.append(then)
        if self.outcome is not None:
            self._tell(self.outcome)
        elif seconds < self.due.left:
            self.due, self.seconds = from_now(seconds), seconds

    def _verdict(self, *, expire: bool) -> tuple[Verdict, Approval | None]:
        """Return the verdict on the request; it expires at once if there is no process."""
        expire = expire or self.children.state(self.name) is State.ABSENT
        approval = self.approvals.find(self.id)
        if approval is None:  # its file was removed: there can be no answer
            return (Verdict.EXPIRED if expire else Verdict.OPEN), None
        if approval.is_open and expire:
            approval = self.approvals.expire(self.id)
        return approval.status, approval

    def _end(self, wanted: ShutdownOutcome, seconds: float) -> None:
        """End the process; the outcome is the wanted one, unless the process is killed."""
        absent = self.children.process(self.name) is None
        if absent and wanted.verdict is Verdict.EXPIRED:
            final, forced = ShutdownOutcome.down(self.name), wanted.with_force()
        else:
            final, forced = wanted, wanted if wanted.verdict is None else wanted.with_force()

        def stopped(took_force: bool) -> None:  # noqa: FBT001 -- a callback's fact
            self.children.roster.change(self.name, status=Status.SHUTDOWN, reason=None)
            self.step(ShutdownEvent.STOPPED, forced if took_force else final)

        self._stop(wanted, seconds, stopped)

    def _stop(self, wanted: ShutdownOutcome, seconds: float, then: EndNotice | None = None) -> None:
        if self.id:
            with suppress(StoreError, NoSuchApproval):  # else the next spawn expires it
                self.approvals.expire(self.id)
        self.children.journal.note(
            LoggedEvent.SHUTTING_DOWN, name=self.name, seconds=seconds, why=wanted.text
        )
        self.children.stop(self.name, seconds=seconds, then=then)

    def _tell(self, final: ShutdownOutcome) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then(final)

    def _settle(self, final: ShutdownOutcome) -> None:
        """Record that it has ended, first in the roster."""
        try:
            self.children.roster.publish()
            with suppress(NoSuchApproval):
                self.approvals.settle(self.id, final.text)
        except TeamError as error:
            self.children.journal.error("handshake not settled", error, name=self.name)
            self.retry = from_now(AGAIN_SECONDS)
        else:
            self.step(ShutdownEvent.SETTLED, final)


SLOW_SECONDS: Final = 30.0  # between searches for requests that a kill left unfinished
_REQUEST: Final = (
    "Please shut down. Answer with shutdown_response and this request_id: approve, or reject with "
    "a reason. Without an answer you are ended in {seconds:g} s."
)


@dataclass(slots=True)
class Shutdowns:
    """All shutdowns of one team; at most one at a time for each teammate."""

    approvals: Approvals
    children: Children
    _known: dict[str, Shutdown] = field(default_factory=dict)
    _repeat: Deadline = field(default_factory=lambda: from_now(0.0))
    _unsent: bool = False  # mail waits to be sent again then

    def ask(
        self, name: str, *, asker: str, seconds: float, then: Then, by_mail: bool = False
    ) -> None:
        """Ask a teammate to shut down; `then` is called once with the outcome.

        A teammate without a process is shut down at once.

        Args:
            name: the teammate.
            asker: the person or the agent that asks.
            seconds: the time for its answer.
            then: called with the outcome.
            by_mail: whether the asker is an agent, which gets the outcome by mail, even if the
                teammate gave no answer.

        Raises:
            StoreError: the request cannot be written, and the teammate was not asked.
        """
        listeners = (asker,) if by_mail else ()
        if (known := self._find(name)) is not None:
            self._join(known, seconds, then, listeners)
            return
        now = time.time()
        approval = Approval(
            type=Kind.SHUTDOWN,
            asker=asker,
            to=name,
            content=_REQUEST.format(seconds=seconds),
            asked=now,
            deadline=now + seconds,
            listeners=listeners,
        )
        one = self._make(name, seconds)
        one.waiting.append(then)
        if self.children.state(name) in ALIVE:
            self._ask(approval)
            one.id = approval.id
            self._known[name] = one
            self.children.journal.note(
                LoggedEvent.SHUTDOWN_ASKED, name=name, id=one.id, seconds=seconds
            )
            return
        if listeners:
            over = replace(approval, status=Verdict.EXPIRED, answered=now, told=True)
            one.id = self.approvals.ask(over).id
            self._known[name] = one
        one.step(ShutdownEvent.EXPIRED, ShutdownOutcome.down(name), seconds)

    def force(self, name: str, *, then: Then) -> None:
        """End a teammate at once, without waiting for an answer."""
        one = self._find(name) or self._make(name, 0.0)
        one.waiting.append(then)
        outcome = ShutdownOutcome.down(name)
        if self.children.process(name) is not None:
            outcome = replace(outcome, text=f"{name} was killed", exit_code=ExitCode.DEADLINE)
        one.step(ShutdownEvent.FORCED, outcome)

    def note_answer(self, name: str) -> None:
        """Handle a teammate's report that it has answered; the answer itself is in the store."""
        if (one := self._find(name)) is not None:
            one.answered = True
        else:
            self._repeat = from_now(0.0)  # the store may hold an unknown request

    def pending(self, name: str) -> bool:
        """Return whether a shutdown of a teammate is under way."""
        return self._find(name) is not None

    def forget(self, name: str) -> None:
        """Withdraw unfinished requests to a teammate, which is spawned again.

        Raises:
            StoreError: the store cannot be written.
        """
        for approval in self._unfinished():
            if approval.to == name:
                self._withdraw(approval, "it was spawned again")

    def resume(self) -> None:
        """Resume the shutdowns of a dead supervisor, before any teammate is started.

        Teammates that agreed or were too late are shut down; others have the rest of their time.
        """
        try:
            self.approvals.sweep()
            for approval in self._unfinished():
                self._resume(approval)
        except TeamError as error:  # such as a full disk: `look` resumes the rest
            self.children.journal.error("handshakes not resumed", error)

    def look(self) -> None:
        """Check for answers and passed deadlines; send mail that a killed process left unsent."""
        for one in self._under_way():
            try:
                one.look()
            except TeamError as error:  # such as a full disk
                self.children.journal.error("handshake stuck", error, name=one.name)
                one.retry = from_now(AGAIN_SECONDS)
        if self._repeat.left <= 0:
            self._repeat = from_now(SLOW_SECONDS)
            self._repeat_mail()

    def next_due_seconds(self) -> float | None:
        """Return the seconds until the next `look`; `None` if there is no shutdown."""
        waiting = [one for one in self._under_way() if one.state is not ShutdownState.ENDING]
        moments = [one.retry or one.due for one in waiting]
        if self._unsent:
            moments.append(self._repeat)
        return max(0.0, min(moment.left for moment in moments)) if moments else None

    def _under_way(self) -> list[Shutdown]:
        return [one for one in self._known.values() if one.state is not ShutdownState.CLOSED]

    def _find(self, name: str) -> Shutdown | None:
        one = self._known.get(name)
        return None if one is None or one.state is ShutdownState.CLOSED else one

    def _make(self, name: str, seconds: float) -> Shutdown:
        return Shutdown(self.approvals, self.children, name, from_now(seconds), seconds)

    def _ask(self, approval: Approval) -> None:
        """Record the request and mail it; once it is recorded, the mail may be sent later.

        Raises:
            StoreError: it cannot be recorded.
        """
        try:
            self.approvals.ask(approval)
        except TeamError as error:
            if self.approvals.find(approval.id) is None:
                raise
            self.children.journal.error("not sent yet", error, id=approval.id, name=approval.to)
            self._repeat_soon()

    def _join(self, one: Shutdown, seconds: float, then: Then, listeners: tuple[str, ...]) -> None:
        with suppress(NoSuchApproval):  # its file was removed: the teammate is ended
            for listener in listeners:
                self.approvals.join(one.id, listener)
        one.join(seconds, then)

    def _unfinished(self) -> list[Approval]:
        asked = [one for one in self.approvals.all() if one.type == Kind.SHUTDOWN]
        return [approval for approval in asked if approval.is_open or approval.owes_end]

    def _resume(self, approval: Approval) -> None:
        member = self.children.roster.team.find(approval.to)
        wanted = member is not None and member.status.wants_process
        left, seconds = _time_left(approval)
        if _never_sent(approval, left):
            self._withdraw(approval, "it was not asked")
            return
        if approval.is_open and left > 0 and wanted:
            self._take_up(approval)
            return
        self.approvals.expire(approval.id)
        self.children.roster.change(approval.to, status=Status.SHUTDOWN, reason=None)
        self.children.roster.publish()
        final = ShutdownOutcome.down(approval.to)
        if wanted and left <= 0:
            final = ShutdownOutcome.overdue(approval.to, seconds)
        self.approvals.settle(approval.id, final.text)

    def _repeat_mail(self) -> None:
        self._unsent = False
        try:
            self._adopt()
            for approval in self.approvals.repeat():
                status = str(approval.status)
                self.children.journal.note("mail repeated", id=approval.id, status=status)
        except TeamError as error:
            self._repeat_soon()
            self.children.journal.error("mail not repeated", error)

    def _repeat_soon(self) -> None:
        self._unsent = True
        self._repeat = from_now(AGAIN_SECONDS)

    def _adopt(self) -> None:
        """Resume unknown requests in the store, such as those whose mail could not be sent.

        A teammate that has agreed reads no mail until it is ended. A request that was never sent
        is withdrawn.
        """
        for approval in self._unfinished():
            if self.pending(approval.to):
                continue
            if _never_sent(approval, _time_left(approval)[0]):
                self._withdraw(approval, "it was not asked")
                continue
            one = self._take_up(approval)
            one.answered, one.retry = not approval.is_open, from_now(0.0)

    def _take_up(self, approval: Approval) -> Shutdown:
        left, seconds = _time_left(approval)
        one = self._make(approval.to, seconds)
        one.due, one.id = from_now(max(left, 0.0)), approval.id
        self._known[approval.to] = one
        return one

    def _withdraw(self, approval: Approval, why: str) -> None:
        self.approvals.expire(approval.id)
        self.approvals.settle(approval.id, f"{approval.to} goes on: {why}")


def _time_left(approval: Approval) -> tuple[float, float]:
    """Return the seconds that are left for an answer, and the seconds given in the request."""
    deadline = approval.deadline or 0.0
    seconds = max(0.0, deadline - approval.asked)
    return min(deadline - time.time(), seconds), seconds  # the clock may be set back


def _never_sent(approval: Approval, left: float) -> bool:
    """Return whether a request was not sent before its deadline."""
    return approval.is_open and not approval.sent and left <= 0
