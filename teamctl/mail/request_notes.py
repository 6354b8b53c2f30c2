"""The note on mail that asks for an answer: how its request ended, or the command to answer."""

from __future__ import annotations

from contextlib import suppress

from teamctl.mail.router import all_approvals
from teamctl.render import output
from teamd.approvals.approval import Approval, Verdict
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.messages import USER, Message


def describe_request(paths: TeamPaths, message: Message) -> str:
    """Return the end of a message's request, or the commands that answer it.

    It is empty if the person cannot answer, or if the message names the commands.
    """
    approval = _find(paths, message)
    if approval is None or not approval.is_open or approval.overdue:
        return describe_end(paths, message)
    approve = paths.add_team_option(f"`teamctl approve {approval.id}`")
    if approve in message.content or not approval.may_be_answered_by(USER):
        return ""
    reject = paths.add_team_option(f"`teamctl reject {approval.id} --reason …`")
    return f"{approve} approves it, {reject} rejects it"


def describe_end(paths: TeamPaths, message: Message) -> str:
    """Return how the request of a message ended.

    It is empty while the request is open, and for a message whose request is unknown.
    """
    approval = _find(paths, message)
    if approval is None:
        return ""
    if approval.overdue or approval.status is Verdict.EXPIRED:
        return "is no longer open: nobody waits for its answer"
    return "" if approval.is_open else _answer(approval)


def _find(paths: TeamPaths, message: Message) -> Approval | None:
    with suppress(TeamError):  # a damaged approval must not keep the person from reading the mail
        found = all_approvals(paths).find(message.extra.get("request_id"))
        if found is not None and (found.asker, found.type) == (message.sender, message.type):
            return found
    return None


def _answer(approval: Approval) -> str:
    who = "you" if approval.answered_by == USER else approval.answered_by
    by = f" by {who}" if who else ""
    ago = "" if approval.answered is None else f" {output.ago(approval.answered)} ago"
    why = " ".join(approval.reason.split())
    return f"was {approval.status} already{by}{ago}" + (f": {why}" if why else "")
