"""The shutdowns of one team: asked for, forced, looked at, and taken up after a kill.

What was asked and answered stands in the store; here is only who waits for it and until when. So a
supervisor that follows a killed one goes on with the same shutdowns.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from teamd.approvals.approval import Approval, Kind, NoSuchApproval, Verdict
from teamd.clocks import Deadline
from teamd.errors import ExitCode, TeamError
from teamd.states import Status
from teamd.supervisor.shutdown import (
    AGAIN_SECONDS,
    ALIVE,
    Outcome,
    Shutdown,
    ShutdownContext,
    ShutdownEvent,
    ShutdownState,
    Then,
    from_now,
)

SLOW_SECONDS: Final = 30.0  # only a kill between two steps leaves what this finds
_REQUEST: Final = (
    "Please shut down. Answer with shutdown_response and this request_id: approve, or reject with "
    "a reason. Without an answer you are ended in {seconds:g} s."
)


@dataclass(slots=True)
class Shutdowns:
    """All shutdowns of one team; a teammate is asked once at a time."""

    context: ShutdownContext
    _known: dict[str, Shutdown] = field(default_factory=dict)
    _repeat: Deadline = field(default_factory=lambda: from_now(0.0))
    _unsent: bool = False  # mail waits to be sent again at that moment

    def ask(
        self, name: str, *, asker: str, seconds: float, then: Then, by_mail: bool = False
    ) -> None:
        """Ask a teammate to shut down; `then` is called once, with how that ended.

        A teammate that has no process to answer is shut down at once.

        Args:
            name: the teammate's.
            asker: who wants it.
            seconds: that it has for its answer.
            then: gets the outcome.
            by_mail: whether the asker is an agent that reads of the outcome in its mail, also where
                the teammate gave no answer.

        Raises:
            StoreError: the request cannot be written; nobody was asked.
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
        one = Shutdown(self.context, name, from_now(seconds), seconds, waiting=[then])
        if self.context.children.state(name) in ALIVE:
            self._ask(approval)
            one.id = approval.id
            self._known[name] = one
            self.context.journal.note("asked to shut down", name=name, id=one.id, seconds=seconds)
            return
        if listeners:
            over = replace(approval, status=Verdict.EXPIRED, answered=now, told=True)
            one.id = self.context.approvals.ask(over).id
            self._known[name] = one
        one.step(ShutdownEvent.EXPIRED, Outcome.down(name), seconds)

    def force(self, name: str, *, then: Then) -> None:
        """End a teammate at once, without asking; one that was asked is not waited for."""
        one = self._find(name) or Shutdown(self.context, name, from_now(0.0), 0.0)
        one.waiting.append(then)
        outcome = Outcome.down(name)
        if self.context.children.process(name) is not None:
            outcome = Outcome(name=name, text=f"{name} was killed", exit_code=ExitCode.DEADLINE)
        one.step(ShutdownEvent.FORCED, outcome)

    def note_answer(self, name: str) -> None:
        """Note that a teammate says that it has answered; whether it has, the store tells."""
        if (one := self._find(name)) is not None:
            one.answered = True
        else:
            self._repeat = from_now(0.0)  # the store may hold what nobody waits for

    def pending(self, name: str) -> bool:
        """Return whether a teammate is asked at the moment, or ends because it was."""
        return self._find(name) is not None

    def forget(self, name: str) -> None:
        """End what a teammate was once asked: it is wanted again.

        Raises:
            StoreError: that cannot be written.
        """
        for approval in self._unfinished():
            if approval.to == name:
                self._withdraw(approval, "it was spawned again")

    def resume(self) -> None:
        """Take up what a dead supervisor left, before any teammate is started.

        A teammate that agreed or was too late is shut down; one that still has time goes on being
        asked.
        """
        try:
            self.context.approvals.sweep()
            for approval in self._unfinished():
                self._resume(approval)
        except TeamError as error:  # a full disk, say: `look` takes up what is left
            self.context.journal.error("handshakes not resumed", error)

    def look(self) -> None:
        """See who has answered, whose time is over, and what mail a killed process left unsent."""
        for one in self._under_way():
            try:
                one.look()
            except TeamError as error:  # a full disk, say
                self.context.journal.error("handshake stuck", error, name=one.name)
                one.retry = from_now(AGAIN_SECONDS)
        if self._repeat.left <= 0:
            self._repeat = from_now(SLOW_SECONDS)
            self._repeat_mail()

    def next_due_seconds(self) -> float | None:
        """Return the seconds until `look` has something to do."""
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

    def _ask(self, approval: Approval) -> None:
        """Write the request down and send it; once it stands, its mail may be sent later.

        Raises:
            StoreError: it does not stand.
        """
        try:
            self.context.approvals.ask(approval)
        except TeamError as error:
            if self.context.approvals.find(approval.id) is None:
                raise
            self.context.journal.error("not sent yet", error, id=approval.id, name=approval.to)
            self._repeat_soon()

    def _join(self, one: Shutdown, seconds: float, then: Then, listeners: tuple[str, ...]) -> None:
        with suppress(NoSuchApproval):  # somebody has removed it: the teammate is ended
            for listener in listeners:
                self.context.approvals.join(one.id, listener)
        one.join(seconds, then)

    def _unfinished(self) -> list[Approval]:
        asked = [one for one in self.context.approvals.all() if one.type == Kind.SHUTDOWN]
        return [approval for approval in asked if approval.is_open or approval.owes_end]

    def _resume(self, approval: Approval) -> None:
        member = self.context.roster.team.find(approval.to)
        wanted = member is not None and member.status.wants_process
        left, seconds = _time_left(approval)
        if _never_sent(approval, left):
            self._withdraw(approval, "it was not asked")
            return
        if approval.is_open and left > 0 and wanted:
            self._take_up(approval)
            return
        self.context.approvals.expire(approval.id)
        self.context.roster.change(approval.to, status=Status.SHUTDOWN, reason=None)
        self.context.roster.publish()
        final = Outcome.down(approval.to)
        if wanted and left <= 0:
            final = Outcome.overdue(approval.to, seconds)
        self.context.approvals.settle(approval.id, final.text)

    def _repeat_mail(self) -> None:
        self._unsent = False
        try:
            self._adopt()
            for approval in self.context.approvals.repeat():
                status = str(approval.status)
                self.context.journal.note("mail repeated", id=approval.id, status=status)
        except TeamError as error:
            self._repeat_soon()
            self.context.journal.error("mail not repeated", error)

    def _repeat_soon(self) -> None:
        self._unsent = True
        self._repeat = from_now(AGAIN_SECONDS)

    def _adopt(self) -> None:
        """Take up what stands in the store and nobody waits for, as where it could not be sent.

        A teammate that has agreed reads no mail until it is ended; one never asked is left alone.
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
        one = Shutdown(self.context, approval.to, from_now(max(left, 0.0)), seconds, id=approval.id)
        self._known[approval.to] = one
        return one

    def _withdraw(self, approval: Approval, why: str) -> None:
        self.context.approvals.expire(approval.id)
        self.context.approvals.settle(approval.id, f"{approval.to} goes on: {why}")


def _time_left(approval: Approval) -> tuple[float, float]:
    """Return the seconds that are left for an answer, and those that there were."""
    deadline = approval.deadline or 0.0
    seconds = max(0.0, deadline - approval.asked)
    return min(deadline - time.time(), seconds), seconds  # the clock may be set back


def _never_sent(approval: Approval, left: float) -> bool:
    """Return whether its receiver was never asked, and can be asked no more."""
    return approval.is_open and not approval.sent and left <= 0
