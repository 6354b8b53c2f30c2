"""The shutdown of a teammate: it was asked to, and agreed by its model or by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from teamd.agent.conversation import prompts
from teamd.approvals.approval import Kind, Verdict
from teamd.errors import TeamError
from teamd.messages import SHUTDOWN_TYPE
from teamd.states import Status

if TYPE_CHECKING:
    from teamd.agent.conversation.conversation import Conversation
    from teamd.agent.reporting import Reporter
    from teamd.approvals.approval import Approval
    from teamd.approvals.store import Approvals


@dataclass(kw_only=True, slots=True)
class Shutdown:
    """One teammate's part in being shut down.

    What counts is the store, never what a message says: a forged request is mail like any other.
    """

    name: str
    conversation: Conversation
    approvals: Approvals
    reporter: Reporter
    _over: set[str] = field(default_factory=set)  # known to be of no more interest: not read again

    def agreed(self) -> bool:
        """Return whether it has agreed to shut down, and has not done so since."""
        return bool(self._approved())

    def requested(self) -> bool:
        """Return whether it is asked to, though the request may still lie in its inbox."""
        return any(
            question.is_open and question.type == Kind.SHUTDOWN and question.to == self.name
            for question in self.approvals.all()
        )

    def due(self, *, more_mail: bool) -> bool:
        """Return whether it shuts down now: it has agreed, or there is nothing to stay for.

        Args:
            more_mail: whether mail waits that it has not read.
        """
        conversation = self.conversation
        if conversation.unfollowed:
            return False  # what its last reply asks for is done first
        if self.agreed():
            return True
        asked = {question.id for question in self._open()}
        if not asked or not conversation.resting:
            return False
        only_that = all(
            mail.type == SHUTDOWN_TYPE and mail.extra.get("request_id") in asked
            for mail in conversation.new_mail
        )
        return conversation.paused or (only_that and not more_mail)

    def carry_out(self) -> None:
        """Agree if need be, write down that it shuts down, and let the supervisor know.

        Every step may be the last of this process: the next one does what is left.
        """
        conversation = self.conversation
        why = prompts.PAUSED_SO_LEFT if conversation.paused else prompts.IDLE_SO_LEFT
        for question in self._open():
            try:
                self.approvals.answer(question.id, by=self.name, approve=True, reason=why)
            except TeamError:  # its deadline came first: then it is being ended
                return
        approved = [question.id for question in self._approved()]
        self._close(approved, prompts.LEFT)
        if conversation.owes_reply:
            conversation.end_turn("shutdown", conversation.said)
        self.reporter.report(Status.IDLE)
        for request in approved:
            self.reporter.report_answer(request)

    def close_old_requests(self) -> None:
        """Tell the model which requests that it has read are nobody's any more."""
        if self.conversation.unfollowed:
            return  # its calls are answered first; there is time for this with the next mail
        old = [
            question.id
            for question in self._questions()
            if question.status is Verdict.EXPIRED
            or (question.status is Verdict.APPROVED and not question.owes_end)
        ]
        self._close(old, prompts.CLOSED)
        self._over.update(old)

    def _close(self, requests: list[str], words: str) -> None:
        fresh = [one for one in requests if one not in self.conversation.closed_requests]
        if fresh:
            self.conversation.add_note(words.format(ids=", ".join(fresh)), closes=fresh)

    def _open(self) -> list[Approval]:
        return [question for question in self._questions() if question.is_open]

    def _approved(self) -> list[Approval]:
        return [question for question in self._questions() if question.owes_end]

    def _questions(self) -> list[Approval]:
        """Return the real ones among the requests that it has read."""
        found = []
        for request in self.conversation.shutdown_requests:
            question = None if request in self._over else self.approvals.find(request)
            if question is None or question.type != Kind.SHUTDOWN or question.to != self.name:
                self._over.add(request)
            else:
                found.append(question)
        return found
