"""Plans: whether a teammate may act is decided by the store and its own records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teamd.approvals.approval import Kind, Verdict
from teamd.messages import (
    COMPACT_TYPE,
    LEAD,
    PLAN_ANSWER_TYPE,
    PROMPT_KEY,
    SHUTDOWN_ANSWER_TYPE,
    SHUTDOWN_TYPE,
    TEAMD,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from teamd.agent.conversation.conversation import Conversation
    from teamd.approvals.approval import Approval
    from teamd.approvals.store import Approvals
    from teamd.messages import Message
    from teamd.team.roster import Team

# Mail that asks for no work.
_NO_TASK: Final = frozenset({COMPACT_TYPE, PLAN_ANSWER_TYPE, SHUTDOWN_ANSWER_TYPE, SHUTDOWN_TYPE})


@dataclass(kw_only=True, slots=True)
class Plans:
    """One teammate's plans: an approval opens the task that the plan was submitted for.

    Attributes:
        team: the roster, read at each call: it says who works by plan, and who is of the team.
    """

    name: str
    conversation: Conversation
    approvals: Approvals
    team: Callable[[], Team]
    # The last task that was found approved; an approval is never taken back.
    _opened: str = ""

    def task(self) -> str:
        """Return the name of the task at hand, for a plan to be submitted for."""
        return self.conversation.task

    def refusal(self, tool: str) -> str | None:
        """Return why a tool that acts may not be used now, in a sentence; `None` where it may.

        Mail has no say in it: what counts is the question's own file, and whose task it is for.
        """
        if self.task() == self._opened or not self._planned:
            return None
        mine = [question for question in self._mine() if question.task == self.task()]
        approved = next((q for q in mine if q.status is Verdict.APPROVED), None)
        if approved is not None:
            self.approvals.make_durable(approved)
            self._opened = self.task()
            return None
        return f"{tool} is refused until your plan is approved; {_hint(mine)}"

    def is_new_task(self, messages: Iterable[Message]) -> bool:
        """Return whether mail that is about to be read begins another task.

        A spawn's prompt does, and a task that was claimed for it while it was idle. Once a turn has
        ended after the approval, so does what the lead writes, or anybody outside the team; with
        its fellows it talks about the task at hand.
        """
        messages = list(messages)
        if any(m.extra.get(PROMPT_KEY) is True or _tells_of_a_claim(m) for m in messages):
            return True
        if not self._planned or not any(self._may_set_task(message) for message in messages):
            return False
        finished = self.conversation.finished_plans
        return bool(finished) and any(
            question.id in finished and question.task == self.task()
            for question in self._mine()
            if question.status is Verdict.APPROVED
        )

    def begin_task(self) -> None:
        """Begin another task, such as one claimed from the board: it needs a plan of its own."""
        self.conversation.begin_task()
        self.withdraw()

    def withdraw(self) -> None:
        """Take back what was submitted for an earlier task: its approval would open nothing."""
        for question in self._mine():
            if question.is_open and question.task != self.task():
                self.approvals.expire(question.id)

    @property
    def _planned(self) -> bool:
        return self.team().get(self.name).plan

    def _may_set_task(self, message: Message) -> bool:
        sender = message.sender.lower()
        if message.type in _NO_TASK or sender == TEAMD:
            return False
        return sender == LEAD or self.team().find(sender) is None

    def _mine(self) -> list[Approval]:
        return [
            question
            for question in self.approvals.all()
            if question.type == Kind.PLAN and question.asker == self.name
        ]


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
