"""The approvals of a team: one file for each, answered once.

A request and its answer are written to the file first and mailed then. The file records each step
that is done; a step that is not recorded is repeated, and mail with the same id is accepted once.
So an approval survives a kill at any point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from teamd.approvals.approval import (
    CALLS,
    ID,
    AlreadyAnswered,
    Approval,
    Kind,
    NoSuchApproval,
    Verdict,
)
from teamd.errors import (
    BadName,
    NotAMessage,
    StoreError,
    StrangeFile,
    UnknownTeam,
    UnknownTeammate,
)
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.messages import USER, Message

if TYPE_CHECKING:
    from teamd.mail.routing import MailRouter

SHORTEST_BEGINNING: Final = 4
KEPT_SECONDS: Final = 30 * 86_400.0  # after the answer
_MOST_NAMED: Final = 5
_LONGEST_REASON: Final = 10_000  # characters
_PASSING: Final = frozenset({Kind.SHUTDOWN, *CALLS})
# The mail cannot be delivered: the receiver has left the team, or the text is not valid mail.
_PROBLEMS: Final = (BadName, NotAMessage, UnknownTeam, UnknownTeammate)


class Approvals:
    """All approvals of one team.

    Args:
        post: delivers requests and answers.
    """

    def __init__(self, paths: TeamPaths, post: MailRouter) -> None:
        self._paths = paths
        self._post = post

    def ask(self, approval: Approval) -> Approval:
        """Ask for an approval; a second one with the same id is ignored.

        Raises:
            StoreError: it cannot be written; ask again with the same id.
        """
        directories.make_safe_directory(self._paths.requests)
        with locks.locked(self._paths.requests_lock):
            there = self.find(approval.id)
            if there is None:
                self._write(approval)
            else:
                self.make_durable(there)
        return self._send(there or approval)

    def answer(
        self, approval_id: str, *, by: str, approve: bool, reason: str = "", always: bool = False
    ) -> Approval:
        """Answer and mail the asker; a repeated answer sends mail that is still missing.

        Args:
            approval_id: its id.
            by: the member that answers; the person is `user`.
            approve: whether it is approved.
            reason: why, in words.
            always: for a call: whether the permission is lasting, see `Approval.grants`.

        Raises:
            NoSuchApproval: it does not exist, or `by` may not answer it.
            AlreadyAnswered: it was answered before, or has expired; nothing is changed.
        """
        verdict = Verdict.APPROVED if approve else Verdict.REJECTED

        def answered(approval: Approval) -> Approval:
            if not approval.may_be_answered_by(by):
                whom = "the person" if approval.type in CALLS else approval.to
                raise NoSuchApproval(f"request {approval.id} is for {whom} to answer, not for {by}")
            if approval.overdue:
                raise AlreadyAnswered(replace(approval, status=Verdict.EXPIRED))
            if approval.is_open:
                words = reason.replace("\0", "\ufffd")[:_LONGEST_REASON]  # they become mail
                facts: dict[str, Any] = {"answered_by": by, "reason": words, "always": always}
                return replace(approval, status=verdict, answered=time.time(), **facts)
            if approval.told or approval.status is not verdict:
                raise AlreadyAnswered(approval)
            return approval

        return self._tell(self._change(approval_id, answered, by=by))

    def join(self, approval_id: str, who: str) -> Approval:
        """Mail the end of an approval to one more agent; at once if it is already answered.

        Raises:
            NoSuchApproval: it does not exist.
        """

        def joined(approval: Approval) -> Approval:
            if who.lower() in map(str.lower, approval.listeners):
                return approval
            return replace(approval, listeners=(*approval.listeners, who))

        return self._tell_if_owed(self._change(approval_id, joined))

    def expire(self, approval_id: str) -> Approval:
        """Close an approval unless it is answered; return its new state.

        Only its listeners get mail about that, by `settle`.
        """

        def expired(approval: Approval) -> Approval:
            if not approval.is_open:
                return approval
            return replace(approval, status=Verdict.EXPIRED, answered=time.time(), told=True)

        return self._change(approval_id, expired)

    def settle(self, approval_id: str, how: str = "") -> None:
        """Record that teamd has acted on the answer.

        Args:
            approval_id: its id.
            how: how an expired one ended, for the listeners.
        """

        def settled(approval: Approval) -> Approval:
            reason = how if approval.status is Verdict.EXPIRED else approval.reason
            return replace(approval, settled=True, reason=reason)

        self._tell_if_owed(self._change(approval_id, settled))

    def grants(self) -> list[Approval]:
        """Return the lasting permissions that are not revoked."""
        return [approval for approval in self.all() if approval.always]

    def take_back(self, approval_id: str) -> Approval:
        """Revoke a lasting permission."""
        return self._change(approval_id, lambda approval: replace(approval, always=False))

    def withdraw(self, asker: str, *kinds: Kind, but: str = "") -> None:
        """Expire all approvals of some kinds that a member has requested, except `but`."""
        for approval in self.open_ones():
            if approval.asker == asker and approval.type in kinds and approval.id != but:
                self.expire(approval.id)

    def make_durable(self, approval: Approval) -> None:
        """Sync an existing approval, so that steps that rely on it survive a power cut."""
        files.make_durable(self._paths.request(approval.id))

    def find(self, approval_id: object) -> Approval | None:
        """Return the approval with exactly this id, if there is one."""
        if not isinstance(approval_id, str) or not ID.fullmatch(approval_id):
            return None  # such an id could name another file
        return self._read(self._paths.request(approval_id))

    def of_message(self, message: Message) -> Approval | None:
        """Return the approval that a message asks for; mail with a borrowed id has none."""
        found = self.find(message.extra.get("request_id"))
        if found is not None and (found.asker, found.type) == (message.sender, message.type):
            return found
        return None

    def match(self, beginning: str) -> Approval:
        """Return the approval with this id, or the only one whose id starts with it, as git does.

        Raises:
            NoSuchApproval: none matches, or several; the message names open ones.
        """
        exact = self.find(beginning)
        if exact is not None:
            return exact
        there = self.all() if len(beginning) >= SHORTEST_BEGINNING else []
        found = [approval for approval in there if approval.id.startswith(beginning.lower())]
        if len(found) > 1:
            names = ", ".join(approval.id for approval in found[:_MOST_NAMED])
            raise NoSuchApproval(
                f"several requests begin with {beginning!r}: {names}; give more characters"
            )
        if not found:
            raise self._unknown(beginning, USER)
        return found[0]

    def all(self) -> list[Approval]:
        """Return every approval, in the order of the requests; skip other files."""
        there = directories.list_files(self._paths.requests, "*.json")
        found = (self._read_any(path) for path in there if not directories.is_directory(path))
        approvals = [approval for approval in found if approval is not None]
        return sorted(approvals, key=lambda approval: (approval.asked, approval.id))

    def open_ones(self) -> list[Approval]:
        """Return the approvals that wait for an answer."""
        return [approval for approval in self.all() if approval.is_open]

    def repeat(self) -> Iterator[Approval]:
        """Send the requests and answers that a killed process may not have sent; yield them.

        Raises:
            StoreError: some mail could not be sent.
        """
        failure: StoreError | None = None
        for approval in self.all():
            try:
                if (approval.is_open and not approval.sent) or approval.owes_mail:
                    self.make_durable(approval)
                if approval.is_open and not approval.sent:
                    yield self._send(approval)
                if approval.owes_mail:
                    yield self._tell(approval)
            except StoreError as error:  # other inboxes may still work
                failure = error
        if failure is not None:
            raise failure

    def sweep(self) -> None:
        """Remove approvals that ended long ago, except plans and lasting permissions."""
        for approval in self.all():
            ended, passing = approval.answered, approval.type in _PASSING and not approval.always
            if not passing or ended is None or approval.owes_end:
                continue
            if approval.told and time.time() - ended > KEPT_SECONDS:
                files.remove(self._paths.request(approval.id))

    def _send(self, approval: Approval) -> Approval:
        if approval.sent or not approval.is_open:
            return approval
        for to in dict.fromkeys((approval.to, *approval.approvers)):
            self._deliver(approval.request_to(to))
        return self._change(approval.id, lambda found: replace(found, sent=True))

    def _tell_if_owed(self, approval: Approval) -> Approval:
        return self._tell(approval) if approval.owes_mail else approval

    def _tell(self, approval: Approval) -> Approval:
        asker = () if approval.told else (approval.asker,)
        to_be_told = {who.lower(): who for who in (*asker, *approval.listeners)}
        for who in to_be_told.values():
            self._deliver(approval.answer_to(who))

        def told(found: Approval) -> Approval:
            left = tuple(one for one in found.listeners if one.lower() not in to_be_told)
            return replace(found, told=True, listeners=left)  # some may have joined meanwhile

        return self._change(approval.id, told)

    def _deliver(self, message: Message) -> None:
        with suppress(*_PROBLEMS):
            self._post.notify(message)

    def _change(
        self, approval_id: str, change: Callable[[Approval], Approval], *, by: str = USER
    ) -> Approval:
        with locks.locked(self._paths.requests_lock):
            old = self.find(approval_id)
            if old is None:
                raise self._unknown(approval_id, by)
            new = change(old)
            if new == old:
                self.make_durable(old)
            else:
                self._write(new)
            return new

    def _write(self, approval: Approval) -> None:
        files.replace(self._paths.request(approval.id), approval.encode())

    def _read(self, path: Path) -> Approval | None:
        content = files.read(path)
        found = None if content is None else Approval.decode(content)
        # An id other than the file's name would be written to another file.
        return found if found is not None and found.id == path.stem else None

    def _read_any(self, path: Path) -> Approval | None:
        with suppress(StrangeFile):  # such as a link: teamd did not create it
            return self._read(path)
        return None

    def _unknown(self, wanted: str, by: str) -> NoSuchApproval:
        mine = [q for q in self.open_ones() if q.may_be_answered_by(by)]
        names = [f"{q.id} ({q.type} of {q.asker})" for q in mine[:_MOST_NAMED]]
        known = f"open are: {', '.join(names)}" if names else "none is open"
        return NoSuchApproval(f"there is no request {wanted!r} to answer; {known}")
