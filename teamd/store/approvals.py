"""Questions that somebody answers with yes or no: one file each, answered once, told for certain.

A question is a file first and mail then; so is its answer. Each step is noted in the file when it
is done, and who finds one that is not, repeats it: mail under the same id is taken once. So a kill
at any point leaves a question that goes on.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from teamd.errors import (
    BadName,
    NotAMessage,
    StoreError,
    TeamError,
    UnknownTeam,
    UnknownTeammate,
)
from teamd.protocol import LEAD, TEAMD, USER, Message
from teamd.store import files, locks
from teamd.store.question import ID, Kind, Question, Verdict
from teamd.store.trouble import told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from teamd.store.paths import TeamPaths
    from teamd.store.post import Post

SHORTEST_BEGINNING: Final = 4
KEPT_SECONDS: Final = 30 * 86_400.0  # an ended handshake
_MOST_NAMED: Final = 5
_LONGEST_REASON: Final = 10_000  # characters
_LEADS: Final = frozenset({LEAD, USER})
# Nobody can be told: the receiver has left the team, or the words can be no mail.
_PROBLEMS: Final = (BadName, NotAMessage, UnknownTeam, UnknownTeammate)


class NoSuchQuestion(TeamError):
    """An id that is nobody's, or of no question that this one may answer."""


class AlreadyAnswered(TeamError):
    """The question is open no more.

    Attributes:
        question: as it stands.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        if question.status is Verdict.EXPIRED:
            why = "is no longer open: nobody waits for its answer"
        else:
            why = f"was {question.status} already"
        super().__init__(f"request {question.id} {why}")


class Approvals:
    """All questions of one team.

    Args:
        paths: the team.
        post: takes questions and answers to those whom they are for.
    """

    def __init__(self, paths: TeamPaths, post: Post) -> None:
        self._paths = paths
        self._post = post

    def ask(self, question: Question) -> Question:
        """Ask; the same id is asked once, whatever stood in the second question.

        Raises:
            StoreError: it cannot be written; ask again with the same id.
        """
        files.make_private_directory(self._paths.requests)
        with locks.locked(self._paths.requests_lock):
            there = self.find(question.id)
            if there is None:
                self._write(question)
            else:
                self.make_durable(there)
        return self._send(there or question)

    def answer(self, question_id: str, *, by: str, approve: bool, reason: str = "") -> Question:
        """Answer and tell the asker. An answer that nobody was told of is told when repeated.

        Raises:
            NoSuchQuestion: there is none, or it is not for `by` to answer.
            AlreadyAnswered: it was answered, or has expired; nothing is changed.
        """
        verdict = Verdict.APPROVED if approve else Verdict.REJECTED

        def answered(question: Question) -> Question:
            if not _may_answer(question, by):
                raise NoSuchQuestion(
                    f"request {question.id} is for {question.to} to answer, not for {by}"
                )
            if question.is_open:
                words = reason.replace("\0", "\ufffd")[:_LONGEST_REASON]  # they become mail
                return replace(question, status=verdict, answered=time.time(), reason=words)
            if question.told or question.status is not verdict:
                raise AlreadyAnswered(question)
            return question

        return self._tell(self._change(question_id, answered, by=by))

    def join(self, question_id: str, who: str) -> Question:
        """Have one more agent told how it ends; of an answer that stands already, at once.

        Raises:
            NoSuchQuestion: there is none.
        """

        def joined(question: Question) -> Question:
            if who.lower() in map(str.lower, question.listeners):
                return question
            return replace(question, listeners=(*question.listeners, who))

        return self._tell_if_owed(self._change(question_id, joined))

    def expire(self, question_id: str) -> Question:
        """Take no answer any more, unless there is one; returns the question as it stands then.

        Only its listeners are told of that, by `settle`.
        """

        def expired(question: Question) -> Question:
            if not question.is_open:
                return question
            return replace(question, status=Verdict.EXPIRED, answered=time.time(), told=True)

        return self._change(question_id, expired)

    def settle(self, question_id: str, how: str = "") -> None:
        """Note that what the answer asks for is done.

        Args:
            question_id: which.
            how: what became of one that was not answered, for whoever listens.
        """

        def settled(question: Question) -> Question:
            unanswered = question.status is Verdict.EXPIRED
            reason = how if unanswered else question.reason
            return replace(question, settled=True, reason=reason)

        self._tell_if_owed(self._change(question_id, settled))

    def withdraw(self, asker: str, kind: Kind, *, but: str = "") -> None:
        """Expire all that one has asked, but for one."""
        for question in self.all():
            asked = (question.asker, question.type) == (asker, kind)
            if question.is_open and asked and question.id != but:
                self.expire(question.id)

    def make_durable(self, question: Question) -> None:
        """Make a question that was found safe from a power cut, before anything is built on it."""
        files.make_durable(self._paths.request(question.id))

    def find(self, question_id: object) -> Question | None:
        """The question of that very id, if there is one."""
        if not isinstance(question_id, str) or not ID.fullmatch(question_id):
            return None  # it would lead to another file
        return self._read(self._paths.request(question_id))

    def match(self, beginning: str) -> Question:
        """The question whose id is this or the only one that begins so, as git finds a commit.

        Raises:
            NoSuchQuestion: there is none, or several; the sentence names open ones.
        """
        exact = self.find(beginning)
        if exact is not None:
            return exact
        long_enough = len(beginning) >= SHORTEST_BEGINNING
        found = [q for q in self.all() if long_enough and q.id.startswith(beginning.lower())]
        if len(found) > 1:
            names = ", ".join(question.id for question in found[:_MOST_NAMED])
            raise NoSuchQuestion(f"several requests begin with {beginning!r}: {names}; say more")
        if not found:
            raise self._unknown(beginning, LEAD)
        return found[0]

    def all(self) -> list[Question]:
        """Every question, in the order in which they were asked; what is none is passed over."""
        with told(self._paths.requests):
            there = [p for p in self._paths.requests.glob("*.json") if not files.is_directory(p)]
            found = [self._read(path) for path in there]
        questions = [question for question in found if question is not None]
        return sorted(questions, key=lambda question: (question.asked, question.id))

    def open_ones(self) -> list[Question]:
        """Those that wait for an answer."""
        return [question for question in self.all() if question.is_open]

    def repeat(self) -> Iterator[Question]:
        """Put again what a killed process may not have put: questions and answers; yields those.

        Raises:
            StoreError: some of it could not be put.
        """
        failure: StoreError | None = None
        for question in self.all():
            try:
                if (question.is_open and not question.sent) or question.owes_mail:
                    self.make_durable(question)
                if question.is_open and not question.sent:
                    yield self._send(question)
                if question.owes_mail:
                    yield self._tell(question)
            except StoreError as error:  # one inbox is locked, say: the others are not
                failure = error
        if failure is not None:
            raise failure

    def sweep(self) -> None:
        """Remove handshakes that ended long ago; approved plans stay, they are still looked at."""
        for question in self.all():
            ended = question.answered
            if question.type != Kind.SHUTDOWN or ended is None or question.owes_end:
                continue
            if question.told and time.time() - ended > KEPT_SECONDS:
                files.remove(self._paths.request(question.id))

    def _send(self, question: Question) -> Question:
        if question.sent or not question.is_open:
            return question
        extra = {"request_id": question.id}
        self._deliver(
            Message(
                id=question.id,
                type=question.type,
                sender=question.asker,
                to=question.to,
                content=question.content,
                timestamp=question.asked,
                extra=extra,
            )
        )
        return self._change(question.id, lambda found: replace(found, sent=True))

    def _tell_if_owed(self, question: Question) -> Question:
        return self._tell(question) if question.owes_mail else question

    def _tell(self, question: Question) -> Question:
        answered = question.status is not Verdict.EXPIRED
        extra: dict[str, object] = {"request_id": question.id}
        if answered:
            extra["approve"] = question.status is Verdict.APPROVED
        if answered and question.reason:
            extra["reason"] = question.reason
        asker = () if question.told else (question.asker,)
        to_be_told = {who.lower(): who for who in (*asker, *question.listeners)}
        for who in to_be_told.values():
            self._deliver(
                Message(
                    id=f"{question.id}-answer",
                    type=question.type.replace("_request", "_response"),
                    sender=question.to if answered else TEAMD,
                    to=who,
                    content=question.reason or f"{question.status}",
                    timestamp=question.answered or question.asked,
                    extra=extra,
                )
            )

        def told(found: Question) -> Question:
            left = tuple(one for one in found.listeners if one.lower() not in to_be_told)
            return replace(found, told=True, listeners=left)  # who joined meanwhile is told yet

        return self._change(question.id, told)

    def _deliver(self, message: Message) -> None:
        with suppress(*_PROBLEMS):
            self._post.notify(message)

    def _change(
        self, question_id: str, change: Callable[[Question], Question], *, by: str = LEAD
    ) -> Question:
        with locks.locked(self._paths.requests_lock):
            old = self.find(question_id)
            if old is None:
                raise self._unknown(question_id, by)
            new = change(old)
            if new == old:
                self.make_durable(old)
            else:
                self._write(new)
            return new

    def _write(self, question: Question) -> None:
        files.replace(self._paths.request(question.id), question.encode())

    def _read(self, path: Path) -> Question | None:
        content = files.read(path)
        return None if content is None else Question.decode(content)

    def _unknown(self, wanted: str, by: str) -> NoSuchQuestion:
        mine = [q for q in self.open_ones() if _may_answer(q, by)]
        names = [f"{q.id} ({q.type} of {q.asker})" for q in mine[:_MOST_NAMED]]
        known = f"open are: {', '.join(names)}" if names else "none is open"
        return NoSuchQuestion(f"there is no request {wanted!r} to answer; {known}")


def _may_answer(question: Question, who: str) -> bool:
    asked, who = question.to.lower(), who.lower()
    # The person of a team may answer what is asked of the lead of another one, too.
    return asked == who or (asked.partition("@")[0] in _LEADS and who in _LEADS)
