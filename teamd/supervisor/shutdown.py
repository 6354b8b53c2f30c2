"""One teammate's shutdown, as a table: it is asked, and ended when it agrees or time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import product
from typing import Final

from teamd.approvals.approval import Approval, NoSuchApproval, Verdict
from teamd.approvals.store import Approvals
from teamd.clocks import Deadline
from teamd.errors import ExitCode, StoreError, TeamError
from teamd.journal import Journal
from teamd.states import Status
from teamd.supervisor.children import Children
from teamd.supervisor.lifecycle import EndNotice, State
from teamd.supervisor.roster_writer import RosterWriter

Then = Callable[["Outcome"], None]

FORCE_AFTER_SECONDS: Final = 2.0  # a process that can end after SIGTERM does so in less
AGAIN_SECONDS: Final = 1.0
ALIVE: Final = (State.RUNNING, State.STUCK)  # a stuck one may come round, and has its deadline


class ShutdownState(Enum):
    """The state of a shutdown."""

    ASKED = auto()
    ENDING = auto()  # the process is being ended
    ENDED = auto()  # the process has ended; that is still to be written down
    CLOSED = auto()


class ShutdownEvent(Enum):
    """The events of a shutdown."""

    APPROVED = auto()
    REJECTED = auto()
    EXPIRED = auto()  # nobody has answered in time, or is there to answer
    FORCED = auto()  # somebody wants the end at once
    STOPPED = auto()  # the process has ended
    LOOKED = auto()  # the moment has come to try again what is still to be written down
    SETTLED = auto()  # all is written down


class ShutdownAction(Enum):
    """The supervisor's answer to an event."""

    NOTHING = auto()
    END = auto()  # end the process, politely at first
    HURRY = auto()  # end it sooner
    TELL = auto()  # tell everybody that waits for the outcome
    TELL_AND_SETTLE = auto()
    SETTLE = auto()  # write down that it has ended


@dataclass(frozen=True, slots=True)
class ShutdownStep:
    """The state that follows, and what is to be done."""

    state: ShutdownState
    action: ShutdownAction


_S, _E, _A = ShutdownState, ShutdownEvent, ShutdownAction

# What changes something, or asks for something to be done; no other event does in a state.
_STEPS: Final = {
    (_S.ASKED, _E.APPROVED): ShutdownStep(_S.ENDING, _A.END),
    (_S.ASKED, _E.REJECTED): ShutdownStep(_S.CLOSED, _A.TELL),
    (_S.ASKED, _E.EXPIRED): ShutdownStep(_S.ENDING, _A.END),
    (_S.ASKED, _E.FORCED): ShutdownStep(_S.ENDING, _A.END),
    (_S.ENDING, _E.FORCED): ShutdownStep(_S.ENDING, _A.HURRY),
    (_S.ENDING, _E.STOPPED): ShutdownStep(_S.ENDED, _A.TELL_AND_SETTLE),
    (_S.ENDED, _E.FORCED): ShutdownStep(_S.ENDED, _A.TELL),
    (_S.ENDED, _E.LOOKED): ShutdownStep(_S.ENDED, _A.SETTLE),
    (_S.ENDED, _E.SETTLED): ShutdownStep(_S.CLOSED, _A.NOTHING),
}
SHUTDOWN_TABLE: Final[dict[tuple[ShutdownState, ShutdownEvent], ShutdownStep]] = {
    (state, event): _STEPS.get((state, event), ShutdownStep(state, _A.NOTHING))
    for state, event in product(ShutdownState, ShutdownEvent)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one teammate's shutdown.

    Attributes:
        verdict: what became of the request; `None` where nobody was asked.
        reason: the teammate's own words.
    """

    name: str
    text: str
    exit_code: ExitCode = ExitCode.DONE
    verdict: Verdict | None = None
    reason: str = ""

    def with_force(self) -> Outcome:
        """Return the same outcome for a process that did not end in time and was killed."""
        text = f"{self.name} did not end in time and was killed"
        if self.verdict is Verdict.APPROVED:
            text = f"{self.name} approved, but did not end in time and was killed"
        if self.verdict is Verdict.EXPIRED:
            text = self.text.removesuffix("ended") + "killed"
        return replace(self, text=text, exit_code=ExitCode.DEADLINE)

    @classmethod
    def down(cls, name: str) -> Outcome:
        """Return the outcome for a teammate without a process that could have been asked."""
        return cls(name=name, text=f"{name} is shut down")

    @classmethod
    def answered(cls, approval: Approval) -> Outcome:
        """Return the outcome that a teammate's own answer leads to."""
        name, reason = approval.to, approval.reason
        if approval.status is Verdict.APPROVED:
            text, code = f"{name} approved and is shut down", ExitCode.DONE
        else:
            text, code = f"{name} rejected the shutdown and goes on", ExitCode.REFUSED
        text += f": {reason}" if reason else ""
        return cls(name=name, text=text, exit_code=code, verdict=approval.status, reason=reason)

    @classmethod
    def overdue(cls, name: str, seconds: float) -> Outcome:
        """Return the outcome for a teammate that did not answer in time."""
        text = f"{name} did not answer within {seconds:g} s and was ended"
        return cls(name=name, text=text, exit_code=ExitCode.DEADLINE, verdict=Verdict.EXPIRED)


@dataclass(frozen=True, slots=True)
class ShutdownContext:
    """The stores and processes that a shutdown works with."""

    approvals: Approvals
    children: Children
    roster: RosterWriter
    journal: Journal


def from_now(seconds: float) -> Deadline:
    """Return a deadline by a clock that is never set back, and rests while the machine does."""
    return Deadline.after(seconds, time.monotonic)


@dataclass(slots=True)
class Shutdown:
    """One teammate's shutdown; the approval in the store alone says what was asked and answered."""

    context: ShutdownContext
    name: str
    due: Deadline  # to be ended without an answer
    seconds: float  # that it had to answer
    id: str = ""  # of the approval; empty where nobody is asked
    waiting: list[Then] = field(default_factory=list)  # told of the outcome
    state: ShutdownState = ShutdownState.ASKED
    answered: bool = False  # the teammate says that it has, and has written everything down
    outcome: Outcome | None = None
    retry: Deadline | None = None  # of a look that has failed

    def look(self) -> None:
        """See whether the teammate has answered, or its time is over.

        Raises:
            TeamError: the store cannot be read or written.
        """
        self.retry = None
        if self.outcome is not None:
            self.step(ShutdownEvent.LOOKED, self.outcome)
        if self.state is not ShutdownState.ASKED:
            return
        left = self.due.left
        running = self.context.children.state(self.name) in ALIVE
        verdict, approval = self._verdict(expire=left <= 0)
        if verdict is Verdict.APPROVED and approval and (self.answered or not running or left <= 0):
            seconds = max(left, FORCE_AFTER_SECONDS)
            self.step(ShutdownEvent.APPROVED, Outcome.answered(approval), seconds)
        elif verdict is Verdict.REJECTED and approval:
            self.context.journal.note("shutdown rejected", name=self.name, reason=approval.reason)
            self.step(ShutdownEvent.REJECTED, Outcome.answered(approval))
        elif verdict is Verdict.EXPIRED:
            late = Outcome.overdue(self.name, self.seconds)
            self.step(ShutdownEvent.EXPIRED, late, FORCE_AFTER_SECONDS)

    def step(self, event: ShutdownEvent, wanted: Outcome, seconds: float = 0.0) -> None:
        """Go on by the table, to this outcome; the process has so many seconds to end."""
        step = SHUTDOWN_TABLE[self.state, event]
        self.state, action = step.state, step.action
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
        """Have one more told of the outcome; of two deadlines the earlier one counts."""
        self.waiting.append(then)
        if self.outcome is not None:
            self._tell(self.outcome)
        elif seconds < self.due.left:
            self.due, self.seconds = from_now(seconds), seconds

    def _verdict(self, *, expire: bool) -> tuple[Verdict, Approval | None]:
        """Return how the request stands; where nobody is there to answer it expires at once."""
        expire = expire or self.context.children.state(self.name) is State.ABSENT
        approval = self.context.approvals.find(self.id)
        if approval is None:  # somebody has removed it: nobody can answer until it is due
            return (Verdict.EXPIRED if expire else Verdict.OPEN), None
        if approval.is_open and expire:
            approval = self.context.approvals.expire(self.id)
        return approval.status, approval

    def _end(self, wanted: Outcome, seconds: float) -> None:
        """End the process; the outcome is the wanted one, unless that takes force."""
        absent = self.context.children.process(self.name) is None
        if absent and wanted.verdict is Verdict.EXPIRED:
            final, forced = Outcome.down(self.name), wanted.with_force()
        else:
            final, forced = wanted, wanted if wanted.verdict is None else wanted.with_force()

        def stopped(took_force: bool) -> None:  # noqa: FBT001 -- a callback's fact
            self.context.roster.change(self.name, status=Status.SHUTDOWN, reason=None)
            self.step(ShutdownEvent.STOPPED, forced if took_force else final)

        self._stop(wanted, seconds, stopped)

    def _stop(self, wanted: Outcome, seconds: float, then: EndNotice | None = None) -> None:
        if self.id:
            with suppress(StoreError, NoSuchApproval):  # a new spawn expires it as well
                self.context.approvals.expire(self.id)
        self.context.journal.note("shutting down", name=self.name, seconds=seconds, why=wanted.text)
        self.context.children.stop(self.name, seconds=seconds, then=then)

    def _tell(self, final: Outcome) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then(final)

    def _settle(self, final: Outcome) -> None:
        """Write down that it has ended, the roster first."""
        try:
            self.context.roster.publish()
            with suppress(NoSuchApproval):
                self.context.approvals.settle(self.id, final.text)
        except TeamError as error:
            self.context.journal.error("handshake not settled", error, name=self.name)
            self.retry = from_now(AGAIN_SECONDS)
        else:
            self.step(ShutdownEvent.SETTLED, final)
