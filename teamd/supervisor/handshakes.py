"""Shutting down as a handshake: a teammate is asked, and ended when it agrees or the time is over.

What was asked and answered stands in the store, which alone is believed; here is only who waits
for it and until when. So a supervisor that follows a killed one goes on with the same handshakes.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from teamd.errors import StoreError, TeamError
from teamd.states import Status
from teamd.store.approvals import NoSuchQuestion
from teamd.store.question import Kind, Question, Verdict
from teamd.supervisor import outcome
from teamd.supervisor.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.journal import Journal
    from teamd.store.approvals import Approvals
    from teamd.supervisor.outcome import Outcome
    from teamd.supervisor.register import Register
    from teamd.supervisor.teammates import Teammates

    Then = Callable[[Outcome], None]

FORCE_AFTER_SECONDS: Final = 2.0  # a process that can end after SIGTERM does so in less
SLOW_SECONDS: Final = 30.0  # only a kill between two steps leaves what this finds
_AGAIN_SECONDS: Final = 1.0
_ALIVE: Final = (State.RUNNING, State.STUCK)  # who is stuck may come round, and has its deadline
_REQUEST: Final = (
    "Please shut down. Answer with shutdown_response and this request_id: approve, or reject with "
    "a reason. Without an answer you are ended in {seconds:g} s."
)


@dataclass(slots=True)
class _Handshake:
    """One that is under way.

    Attributes:
        due_at: when the teammate is ended without an answer, by a clock that is never set back.
        seconds: how long it had to answer.
        waiting: who is told how it ends.
        heard: whether the teammate says that it has answered and written everything down.
        ending: whether its process is being ended.
        ended: how it has, where that could not be written down yet.
        again_at: when to look again, where a look has failed.
    """

    id: str
    name: str
    due_at: float
    seconds: float
    waiting: list[Then] = field(default_factory=list)
    heard: bool = False
    ending: bool = False
    ended: Outcome | None = None
    again_at: float | None = None


class Handshakes:
    """All of one team; a teammate is asked once at a time."""

    def __init__(
        self, *, approvals: Approvals, teammates: Teammates, register: Register, journal: Journal
    ) -> None:
        self._approvals = approvals
        self._teammates = teammates
        self._register = register
        self._journal = journal
        self._under_way: dict[str, _Handshake] = {}
        self._repeat_at = 0.0
        self._unsent = False  # mail waits to be sent again at that moment

    def ask(
        self, name: str, *, asker: str, seconds: float, then: Then, by_mail: bool = False
    ) -> None:
        """Ask a teammate to shut down; `then` is called once, with how that ended.

        One that has no process to answer is shut down at once.

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
        one = self._under_way.get(name)
        if one is not None:
            self._join(one, seconds, then, listeners)
            return
        alive = self._teammates.state(name) in _ALIVE
        now = time.time()
        question = Question(
            type=Kind.SHUTDOWN,
            asker=asker,
            to=name,
            content=_REQUEST.format(seconds=seconds),
            asked=now,
            deadline=now + seconds,
            listeners=listeners,
        )
        due_at = time.monotonic() + seconds
        if alive:
            self._ask(question)
            self._under_way[name] = _Handshake(question.id, name, due_at, seconds, [then])
            self._journal.note("asked to shut down", name=name, id=question.id, seconds=seconds)
            return
        one = _Handshake("", name, due_at, seconds, [then])
        if listeners:
            over = replace(question, status=Verdict.EXPIRED, answered=now, told=True)
            one.id = self._approvals.ask(over).id
            self._under_way[name] = one
        self._end(one, outcome.down(name), seconds)

    def _ask(self, question: Question) -> None:
        """Write it down and send it; what stands is asked, and its mail is sent as soon as may be.

        Raises:
            StoreError: it does not stand.
        """
        try:
            self._approvals.ask(question)
        except TeamError as error:
            if self._approvals.find(question.id) is None:
                raise
            self._journal.error("not sent yet", error, id=question.id, name=question.to)
            self._unsent = True
            self._repeat_at = time.monotonic() + _AGAIN_SECONDS

    def _join(
        self, one: _Handshake, seconds: float, then: Then, listeners: tuple[str, ...]
    ) -> None:
        """Have one more told how a handshake ends; of two bounds the earlier one counts."""
        with suppress(NoSuchQuestion):  # somebody has removed it: the teammate is ended
            for who in listeners:
                self._approvals.join(one.id, who)
        if one.ended is not None:
            then(one.ended)
            return
        one.waiting.append(then)
        due_at = time.monotonic() + seconds
        if due_at < one.due_at:
            one.due_at, one.seconds = due_at, seconds

    def force(self, name: str, *, then: Then) -> None:
        """End a teammate at once, without asking; one that was asked is not waited for."""
        one = self._under_way.get(name) or _Handshake("", name, time.monotonic(), 0.0)
        if one.ended is not None:
            then(one.ended)
            return
        one.waiting.append(then)
        alive = self._teammates.process(name) is not None
        self._end(one, outcome.forced(name) if alive else outcome.down(name), 0.0)

    def hear(self, name: str) -> None:
        """A teammate says that it has answered; whether it has, the store tells."""
        if name in self._under_way:
            self._under_way[name].heard = True
        else:
            self._repeat_at = 0.0  # the store may hold what nobody waits for

    def pending(self, name: str) -> bool:
        """Whether a teammate is asked at the moment, or ends because it was."""
        return name in self._under_way

    def forget(self, name: str) -> None:
        """End what a teammate was once asked: it is wanted again.

        Raises:
            StoreError: that cannot be written.
        """
        for question in self._unfinished():
            if question.to == name:
                self._approvals.expire(question.id)
                self._approvals.settle(question.id, f"{name} goes on: it was spawned again")

    def resume(self) -> None:
        """Take up what a dead supervisor left, before any teammate is started.

        Who agreed or was too late is shut down; who still has time goes on being asked.
        """
        try:
            self._approvals.sweep()
            for question in self._unfinished():
                self._resume(question)
        except TeamError as error:  # a full disk, say: `look` takes up what is left
            self._journal.error("handshakes not resumed", error)

    def look(self) -> None:
        """See who has answered, whose time is over, and what mail a killed process left unsent."""
        for one in list(self._under_way.values()):
            one.again_at = None
            try:
                self._look_at(one)
            except TeamError as error:  # a full disk, say
                self._journal.error("handshake stuck", error, name=one.name)
                one.again_at = time.monotonic() + _AGAIN_SECONDS
        if time.monotonic() >= self._repeat_at:
            self._repeat_at = time.monotonic() + SLOW_SECONDS
            self._repeat()

    def next_due_seconds(self) -> float | None:
        """How long until `look` has something to do."""
        there = [o for o in self._under_way.values() if o.ended is not None or not o.ending]
        moments = [one.due_at if one.again_at is None else one.again_at for one in there]
        if self._unsent:
            moments.append(self._repeat_at)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _look_at(self, one: _Handshake) -> None:
        if one.ended is not None:
            self._settle(one, one.ended)
        if one.ending:
            return
        left = one.due_at - time.monotonic()
        running = self._teammates.state(one.name) in _ALIVE
        verdict, question = self._verdict(one, expire=left <= 0)
        if verdict is Verdict.APPROVED and question and (one.heard or not running or left <= 0):
            self._end(one, outcome.approved(question), max(left, FORCE_AFTER_SECONDS))
        elif verdict is Verdict.REJECTED and question:
            self._close(one, outcome.rejected(question))
        elif verdict is Verdict.EXPIRED:
            self._end(one, outcome.overdue(one.name, one.seconds), FORCE_AFTER_SECONDS)

    def _verdict(self, one: _Handshake, *, expire: bool) -> tuple[Verdict, Question | None]:
        """How the question stands; one without anybody to answer expires at once."""
        expire = expire or self._teammates.state(one.name) is State.ABSENT
        question = self._approvals.find(one.id)
        if question is None:  # somebody has removed it: nobody can answer until it is due
            return (Verdict.EXPIRED if expire else Verdict.OPEN), None
        if question.is_open and expire:
            question = self._approvals.expire(one.id)
        return question.status, question

    def _end(self, one: _Handshake, wanted: Outcome, seconds: float) -> None:
        """End a teammate, politely at first, and tell who waits what it took."""
        name = one.name
        absent = self._teammates.process(name) is None and wanted.verdict is Verdict.EXPIRED
        already, one.ending = one.ending, True
        if one.id:
            with suppress(StoreError, NoSuchQuestion):  # what it says is seen to at a new spawn
                self._approvals.expire(one.id)

        def ended(took_force: bool) -> None:  # noqa: FBT001 -- a callback's fact
            self._register.change(name, status=Status.SHUTDOWN, reason=None)
            final = outcome.down(name) if absent else wanted
            if took_force and wanted.verdict is not None:
                final = outcome.killed(wanted)
            one.ended = final
            self._tell(one, final)
            self._settle(one, final)

        self._journal.note("shutting down", name=name, seconds=seconds, why=wanted.text)
        self._teammates.stop(name, seconds=seconds, then=None if already else ended)

    def _close(self, one: _Handshake, rejection: Outcome) -> None:
        del self._under_way[one.name]
        self._journal.note("shutdown rejected", name=one.name, reason=rejection.reason)
        self._tell(one, rejection)

    def _tell(self, one: _Handshake, final: Outcome) -> None:
        waiting, one.waiting = one.waiting, []
        for then in waiting:
            then(final)

    def _settle(self, one: _Handshake, final: Outcome) -> None:
        """Write down that it has ended, the roster first."""
        try:
            self._register.publish()
            with suppress(NoSuchQuestion):
                self._approvals.settle(one.id, final.text)
        except TeamError as error:
            self._journal.error("handshake not settled", error, name=one.name)
            one.again_at = time.monotonic() + _AGAIN_SECONDS
            return
        if self._under_way.get(one.name) is one:
            del self._under_way[one.name]

    def _unfinished(self) -> list[Question]:
        return [
            question
            for question in self._approvals.all()
            if question.type == Kind.SHUTDOWN and (question.is_open or question.owes_end)
        ]

    def _resume(self, question: Question) -> None:
        member = self._register.team.find(question.to)
        seconds = max(0.0, (question.deadline or 0.0) - question.asked)
        left = min((question.deadline or 0.0) - time.time(), seconds)  # the clock may be set back
        wanted = member is not None and member.status.wants_process
        if question.is_open and not question.sent and left <= 0:
            self._let_be(question)
            return
        if question.is_open and left > 0 and wanted:
            due_at = time.monotonic() + left
            self._under_way[question.to] = _Handshake(question.id, question.to, due_at, seconds)
            return
        self._approvals.expire(question.id)
        self._register.change(question.to, status=Status.SHUTDOWN, reason=None)
        self._register.publish()
        late = wanted and left <= 0
        final = outcome.overdue(question.to, seconds) if late else outcome.down(question.to)
        self._approvals.settle(question.id, final.text)

    def _repeat(self) -> None:
        self._unsent = False
        try:
            self._adopt()
            for question in self._approvals.repeat():
                self._journal.note("mail repeated", id=question.id, status=str(question.status))
        except TeamError as error:
            self._unsent = True
            self._repeat_at = time.monotonic() + _AGAIN_SECONDS
            self._journal.error("mail not repeated", error)

    def _let_be(self, question: Question) -> None:
        """End what its receiver was never asked, and can be asked no more."""
        self._approvals.expire(question.id)
        self._approvals.settle(question.id, f"{question.to} goes on: it was not asked")

    def _adopt(self) -> None:
        """Take up what stands in the store and nobody waits for, as where it could not be sent.

        Who has agreed stays deaf until it is ended; who was never asked is left alone.
        """
        for question in self._unfinished():
            if question.to in self._under_way:
                continue
            left = (question.deadline or 0.0) - time.time()
            if question.is_open and not question.sent and left <= 0:
                self._let_be(question)
                continue
            seconds = max(0.0, (question.deadline or 0.0) - question.asked)
            due_at = time.monotonic() + max(left, 0.0)
            one = _Handshake(question.id, question.to, due_at, seconds)
            one.heard, one.again_at = not question.is_open, time.monotonic()
            self._under_way[question.to] = one
