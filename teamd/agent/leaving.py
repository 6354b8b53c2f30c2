"""When a teammate leaves: it was asked to shut down and agreed, by its model or by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.agent import prompts
from teamd.approvals.approval import Kind, Verdict
from teamd.errors import TeamError
from teamd.protocol import SHUTDOWN_TYPE
from teamd.states import Status

if TYPE_CHECKING:
    from typing import Protocol

    from teamd.agent.conversation import Conversation
    from teamd.approvals.approval import Approval
    from teamd.approvals.store import Approvals

    class Outside(Protocol):
        """Whom a leaving teammate tells."""

        def report(self, status: Status, reason: str | None = None) -> None:
            """Tell the supervisor how it goes."""

        def say_answered(self, request_id: str) -> None:
            """Have the supervisor look at an answer in the store."""


class Leaving:
    """One teammate's part in being shut down.

    What counts is the store, never what a message says: a forged request is mail like any other.
    """

    def __init__(
        self, *, name: str, conversation: Conversation, approvals: Approvals, outside: Outside
    ) -> None:
        self._name = name
        self._conversation = conversation
        self._approvals = approvals
        self._outside = outside
        self._over: set[str] = set()  # known to be of no more interest: not read again

    def agreed(self) -> bool:
        """Whether it has agreed to leave, and has not left since."""
        return any(question.owes_end for question in self._approved())

    def asked(self) -> bool:
        """Whether it is asked to leave, though the request may still lie in its inbox."""
        return any(
            question.is_open and question.type == Kind.SHUTDOWN and question.to == self._name
            for question in self._approvals.all()
        )

    def ready(self, *, more_mail: bool) -> bool:
        """Whether it leaves now: it has agreed, or there is nothing for which it would stay.

        Args:
            more_mail: whether mail waits that it has not read.
        """
        standing = self._conversation.standing
        if self._conversation.unfollowed:
            return False  # what its last reply asks for is done first
        if self.agreed():
            return True
        asked = {question.id for question in self._open()}
        if not asked or not standing.resting:
            return False
        only_that = all(
            message.get("type") == SHUTDOWN_TYPE and message.get("request_id") in asked
            for message in standing.news
        )
        return standing.paused or (only_that and not more_mail)

    def leave(self) -> None:
        """Agree if need be, write down that it has left, and let the supervisor know.

        Every step may be the last of this process: the next one does what is left.
        """
        talk = self._conversation
        why = prompts.PAUSED_SO_LEFT if talk.standing.paused else prompts.IDLE_SO_LEFT
        for question in self._open():
            try:
                self._approvals.answer(question.id, by=self._name, approve=True, reason=why)
            except TeamError:  # its deadline came first: then it is being ended
                return
        left = [question.id for question in self._approved()]
        self._close(left, prompts.LEFT)
        if talk.owes_reply:
            talk.end_turn("shutdown", talk.said)
        self._outside.report(Status.IDLE)
        for request in left:
            self._outside.say_answered(request)

    def close_old(self) -> None:
        """Tell the model which requests that it has read are nobody's any more."""
        if self._conversation.unfollowed:
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
        fresh = [one for one in requests if one not in self._conversation.standing.closed]
        if fresh:
            self._conversation.add_note(words.format(ids=", ".join(fresh)), closes=fresh)

    def _open(self) -> list[Approval]:
        return [question for question in self._questions() if question.is_open]

    def _approved(self) -> list[Approval]:
        return [question for question in self._questions() if question.owes_end]

    def _questions(self) -> list[Approval]:
        """The real ones among the requests it has read."""
        found = []
        for request in self._conversation.standing.requests:
            question = None if request in self._over else self._approvals.find(request)
            if question is None or question.type != Kind.SHUTDOWN or question.to != self._name:
                self._over.add(request)
            else:
                found.append(question)
        return found
