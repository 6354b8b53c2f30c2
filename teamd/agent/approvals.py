"""A teammate's side of approvals: its plans, and requests that it shut down.

Only the store and the teammate's own records decide whether it may act or is asked to shut down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from teamd.agent.conversation import prompts
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.work import Reporter
from teamd.approvals.approval import CALLS, Approval, Kind, Verdict
from teamd.approvals.store import Approvals
from teamd.errors import TeamError
from teamd.messages import (
    COMPACT_TYPE,
    HELD_TYPE,
    LEAD,
    PLAN_ANSWER_TYPE,
    PROMPT_KEY,
    SHUTDOWN_ANSWER_TYPE,
    SHUTDOWN_TYPE,
    TEAMD,
    Message,
)
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.tools import Result
from teamd.transcript.records import TaskBegun

# Mail that asks for no work.
_NO_TASK: Final = frozenset(
    {COMPACT_TYPE, HELD_TYPE, PLAN_ANSWER_TYPE, SHUTDOWN_ANSWER_TYPE, SHUTDOWN_TYPE}
)


@dataclass(slots=True)
class Plans:
    """One teammate's plans: an approval unlocks the task that the plan was submitted for.

    Attributes:
        roster: tells which teammates work by plan and who belongs to the team.
    """

    name: str
    conversation: Conversation
    approvals: Approvals
    roster: Roster
    # The last task that was found approved; an approval is never taken back.
    _opened: str = ""

    def refusal(self, tool: str) -> str | None:
        """Return why an acting tool may not be used now, as a sentence; `None` if it may.

        Mail cannot approve a plan: only the request's own file and its task count.
        """
        if self.conversation.task == self._opened or not self._planned:
            return None
        mine = [question for question in self._mine() if question.task == self.conversation.task]
        approved = next((q for q in mine if q.status is Verdict.APPROVED), None)
        if approved is not None:
            self.approvals.make_durable(approved)
            self._opened = self.conversation.task
            return None
        return f"{tool} is refused until your plan is approved; {_hint(mine)}"

    def is_new_task(self, messages: Iterable[Message]) -> bool:
        """Return whether mail that is about to be read begins another task.

        The prompt of a spawn does, and so does a task that was claimed while the teammate was idle.
        Once a turn has ended after the approval, mail from the lead or from outside the team does
        as well. Mail from teammates belongs to the current task.
        """
        messages = list(messages)
        if any(m.extra.get(PROMPT_KEY) is True or _tells_of_a_claim(m) for m in messages):
            return True
        finished, task = self.conversation.finished_plans, self.conversation.task
        if not (finished and self._planned and any(map(self._may_set_task, messages))):
            return False
        approved = (question for question in self._mine() if question.status is Verdict.APPROVED)
        return any(question.id in finished and question.task == task for question in approved)

    def begin_task(self) -> None:
        """Begin another task, such as one claimed from the board: it needs a plan of its own."""
        self.conversation.record(TaskBegun())
        self.withdraw()

    def withdraw(self) -> None:
        """Withdraw plans for earlier tasks: their approval would have no effect."""
        for question in self._mine():
            if question.is_open and question.task != self.conversation.task:
                self.conversation.settle()  # others see that there is another task
                self.approvals.expire(question.id)

    @property
    def _planned(self) -> bool:
        return self.roster.get(self.name).plan

    def _may_set_task(self, message: Message) -> bool:
        sender = message.sender.lower()
        if message.type in _NO_TASK or sender == TEAMD:
            return False
        return sender == LEAD or self.roster.find(sender) is None

    def _mine(self) -> list[Approval]:
        plans = (question for question in self.approvals.all() if question.type == Kind.PLAN)
        return [plan for plan in plans if plan.asker == self.name]


@dataclass(slots=True)
class OwnShutdown:
    """Answers the shutdown requests to one teammate, and carries them out.

    Only the store of approvals counts, never the text of a message: a forged request is plain mail.
    """

    name: str
    conversation: Conversation
    approvals: Approvals
    reporter: Reporter
    _over: set[str] = field(default_factory=set)  # settled; not read again

    def agreed(self) -> bool:
        """Return whether it has agreed to shut down and has not yet done so."""
        return any(question.owes_end for question in self._questions())

    def requested(self) -> bool:
        """Return whether it is asked to shut down, even if the request is still in its inbox."""
        asked = [one for one in self.approvals.open_ones() if one.type == Kind.SHUTDOWN]
        return any(question.to == self.name for question in asked)

    def due(self, *, more_mail: Callable[[], bool], paused: Callable[[], bool]) -> bool:
        """Return whether the teammate shuts down now: it has agreed, or no work is left.

        Args:
            more_mail: returns whether unread mail waits.
            paused: returns whether the teammate is paused, and so would not read that mail.
        """
        conversation = self.conversation
        if conversation.unfollowed and not conversation.paused:
            return False  # carry out the last reply first
        questions = self._questions()
        if any(question.owes_end for question in questions):
            return True
        asked = {question.id for question in questions if question.is_open}
        if not asked or not conversation.resting:
            return False
        only_that = all(
            mail.type == SHUTDOWN_TYPE and mail.extra.get("request_id") in asked
            for mail in conversation.new_mail
        )
        return paused() or conversation.paused or (only_that and not more_mail())

    def carry_out(self) -> None:
        """Agree if needed, record the shutdown and tell the supervisor.

        The process may be killed after any step; the next process does the rest.
        """
        conversation = self.conversation
        why = prompts.PAUSED_SO_LEFT if conversation.paused else prompts.IDLE_SO_LEFT
        for question in (one for one in self._questions() if one.is_open):
            try:
                self.approvals.answer(question.id, by=self.name, approve=True, reason=why)
            except TeamError:  # its deadline came first: then it is being ended
                return
        self._drop_calls()
        approved = [question.id for question in self._questions() if question.owes_end]
        self._close(approved, prompts.LEFT)
        if conversation.owes_reply:
            conversation.end_turn("shutdown", conversation.said)
        self.reporter.report(Status.IDLE)
        for request in approved:
            self.reporter.report_answer(request)

    def _drop_calls(self) -> None:
        """Answer all open calls, if one waits for a permission: none of them will run."""
        conversation = self.conversation
        for call in conversation.unanswered:
            begun = call["id"] in conversation.begun  # by a process that was killed at it
            why = prompts.INTERRUPTED_CALL if begun else prompts.SHUT_DOWN_CALL
            conversation.add_result(call, Result(text=why, is_error=True))
        self.approvals.withdraw(self.name, *CALLS)

    def close_old_requests(self) -> None:
        """Tell the model which of the shutdown requests that it has read are closed."""
        if self.conversation.unfollowed:
            return  # its calls are answered first; there is time for this with the next mail
        old = [
            question.id
            for question in self._questions()
            if question.status is Verdict.EXPIRED
            or (question.status is Verdict.APPROVED and not question.owes_end)
        ]
        if old:
            self._close(old, prompts.CLOSED)
            self._over.update(old)

    def _close(self, requests: list[str], words: str) -> None:
        fresh = [one for one in requests if one not in self.conversation.closed_requests]
        if fresh:
            self.conversation.add_note(words.format(ids=", ".join(fresh)), closes=fresh)

    def _questions(self) -> list[Approval]:
        """Return the genuine shutdown requests among those that it has read."""
        found = []
        for request in self.conversation.shutdown_requests:
            question = None if request in self._over else self.approvals.find(request)
            if question is None or question.type != Kind.SHUTDOWN or question.to != self.name:
                self._over.add(request)
            else:
                found.append(question)
        return found


def _tells_of_a_claim(message: Message) -> bool:
    return message.sender == TEAMD and "task_id" in message.extra


def _hint(plans: list[Approval]) -> str:
    if not plans:
        return "read what you need, then call submit_plan"
    last = plans[-1]
    if last.is_open:
        return f"plan {last.id} waits for its approval, which comes as mail: end your turn"
    why = f": {last.reason}" if last.reason else ""
    return f"plan {last.id} was {last.status}{why}; call submit_plan with a better one"
