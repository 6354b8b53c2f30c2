"""An approval that one member asks of another, stored in a file of `.team/requests/`."""

from __future__ import annotations

import hmac
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from teamd.errors import TeamError
from teamd.messages import (
    LEAD,
    PERMISSION_TYPE,
    PLAN_TYPE,
    PUSH_TYPE,
    SHUTDOWN_TYPE,
    TEAMD,
    USER,
    Message,
    is_moment,
)
from teamd.permissions.grant import Grant

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_LEADS: Final = frozenset({LEAD, USER})
_TOOL: Final = "tool"
_INPUT: Final = "input"
_SHORT: Final = 12  # characters of a commit's id
_MOST_COMMITS: Final = 10  # on one line
_ID_BYTES: Final = 6  # short enough to be typed, long enough for one team


class Kind(StrEnum):
    """The kinds of approvals that teamd acts on; other programs may add kinds."""

    SHUTDOWN = SHUTDOWN_TYPE
    PLAN = PLAN_TYPE
    PERMISSION = PERMISSION_TYPE
    PUSH = PUSH_TYPE


CALLS: Final = (Kind.PERMISSION, Kind.PUSH)  # a tool call of the asker waits for the answer


class Verdict(StrEnum):
    """The state of an approval."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A request of one member for another's approval: a plan, a permission, or a shutdown.

    Attributes:
        asker: the member that asked and gets the answer; `from` in JSON.
        to: the only member that may answer; for a permission the person.
        approvers: agents that may also answer a permission, by the settings of its asker.
        asked: in seconds since the epoch, as are `deadline` and `answered`.
        sent: whether the request was delivered to `to`.
        told: whether the answer was delivered to the asker.
        listeners: agents that are still to get mail about the end.
        settled: whether teamd has acted on the answer, if that is needed.
        task: for a plan: the task of the asker.
        answered_by: the member that answered.
        grants: for a call: the calls that an answer with `always` allows from then on.
        always: whether the answer was a lasting permission that has not been revoked.
        extra: keys of other programs, kept unchanged, those of `describe_call`, and for a push
            `remote`, `branch`, `commits` and `stat`.
    """

    id: str = field(default_factory=lambda: os.urandom(_ID_BYTES).hex())
    type: str
    asker: str
    to: str
    content: str
    asked: float
    deadline: float | None = None
    status: Verdict = Verdict.OPEN
    answered: float | None = None
    reason: str = ""
    sent: bool = False
    told: bool = False
    settled: bool = False
    task: str = ""
    listeners: tuple[str, ...] = ()
    answered_by: str = ""
    approvers: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    always: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer."""
        return self.status is Verdict.OPEN

    @property
    def overdue(self) -> bool:
        """Whether the deadline of a call that waits for an answer has passed."""
        late = self.deadline is not None and time.time() >= self.deadline
        return self.type in CALLS and self.is_open and late

    def may_be_answered_by(self, who: str) -> bool:
        """Return whether a member may answer.

        The person of a team may also answer a request to the lead of another team. A permission is
        answered by the person, who is `user` here, or by its approvers; never by the asker. A push
        has no approvers.
        """
        who = who.lower()
        if self.type in CALLS:
            approvers = {name.lower() for name in self.approvers} - {self.asker.lower()}
            return who == USER or who in approvers
        asked = self.to.lower()
        return asked == who or (asked.partition("@")[0] in _LEADS and who in _LEADS)

    @property
    def what(self) -> str:
        """The exact command, push or plan to approve, without advice."""
        if self.type == Kind.PUSH and (shown := describe_push(self.extra)):
            return shown
        tool, given = self.extra.get(_TOOL), self.extra.get(_INPUT)
        if not isinstance(tool, str) or not isinstance(given, dict):
            return self.content
        if len(given) == 1:
            return f"{tool} {next(iter(given.values()))}"
        return "\n".join([tool, *(f"{key}: {value}" for key, value in given.items())])

    @property
    def line(self) -> str:
        """The same on one line, with the first commits of a push."""
        if self.type != Kind.PUSH:
            return " ".join(self.what.split())
        what = describe_push(self.extra, most=_MOST_COMMITS) or self.content
        first, *rest = (" ".join(line.split()) for line in what.split("\n"))
        return f"{first} {'; '.join(rest)}"

    @property
    def owes_end(self) -> bool:
        """Whether it is an approved or expired shutdown that teamd has not acted on yet."""
        ends = self.status in (Verdict.APPROVED, Verdict.EXPIRED)
        return self.type == Kind.SHUTDOWN and ends and not self.settled

    @property
    def owes_mail(self) -> bool:
        """Whether mail about its end is not yet sent; an expired approval must be settled first."""
        if self.is_open or (self.status is Verdict.EXPIRED and not self.settled):
            return False
        return not self.told or bool(self.listeners)

    def request_to(self, who: str) -> Message:
        """Return the request as mail to a member that may answer it."""
        return Message(
            id=self.id,
            type=self.type,
            sender=self.asker,
            to=who,
            content=self.content,
            timestamp=self.asked,
            extra={"request_id": self.id},
        )

    def answer_to(self, who: str) -> Message:
        """Return the answer, or the fact that it expired, as mail to a waiting member."""
        answered = self.status is not Verdict.EXPIRED
        extra: dict[str, object] = {"request_id": self.id}
        if answered:
            extra["approve"] = self.status is Verdict.APPROVED
        if answered and self.reason:
            extra["reason"] = self.reason
        return Message(
            id=f"{self.id}-answer",
            type=self.type.replace("_request", "_response"),
            sender=self.to if answered else TEAMD,
            to=who,
            content=self.reason or f"{self.status}",
            timestamp=self.answered or self.asked,
            extra=extra,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the approval for its file and for `--json`."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "extra"}
        values = {"from" if key == "asker" else key: value for key, value in own.items()}
        values["grants"] = [grant.to_json() for grant in self.grants]
        return {**self.extra, **values}

    def encode(self) -> bytes:
        """Return the content of the approval's file."""
        return json.dumps(self.to_json(), indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Approval | None:
        """Read a file; return `None` if its content is not an approval."""
        try:
            fields = json.loads(content)
            moments = {key: fields.pop(key, None) for key in ("asked", "answered", "deadline")}
            texts: dict[str, Any] = {
                key: fields.pop(key) for key in ("id", "type", "to", "content")
            }
            texts |= {key: fields.pop(key, "") for key in ("reason", "task", "answered_by")}
            texts["asker"] = fields.pop("from")
            flags: dict[str, Any] = {
                key: fields.pop(key, None) is True for key in ("sent", "told", "settled", "always")
            }
            status = Verdict(fields.pop("status"))
            lists: dict[str, Any] = {
                key: tuple(map(str, fields.pop(key, ()))) for key in ("listeners", "approvers")
            }
            grants = tuple(map(Grant.decode, fields.pop("grants", ())))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not is_moment(moments["asked"]) or not all(isinstance(t, str) for t in texts.values()):
            return None
        moments = {key: value if is_moment(value) else None for key, value in moments.items()}
        extra = MappingProxyType(fields)
        return cls(**texts, **moments, **flags, **lists, status=status, grants=grants, extra=extra)


def describe_call(tool: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the `extra` keys of a tool call's approval, from which interfaces show the call."""
    return {_TOOL: tool, _INPUT: arguments}


def describe_push(facts: Mapping[str, Any], *, most: int | None = None) -> str:
    """Return the `extra` keys of a push as lines; empty if they are not those of teamd's pushes.

    Args:
        facts: the keys.
        most: how many commits to name; `None` for all.
    """
    try:
        remote, branch, stat = (str(facts[name]) for name in ("remote", "branch", "stat"))
        commits = [f"{one['commit'][:_SHORT]} {one['subject']}" for one in facts["commits"]]
    except (KeyError, TypeError):
        return ""
    count = "1 commit" if len(commits) == 1 else f"{len(commits)} commits"
    if more := len(commits[most:]) if most is not None else 0:
        commits[most:] = [f"and {more} more: `teamctl requests`"]
    return "\n".join(filter(None, (f"{count} to {branch} of {remote}:", *commits, stat)))


def find_waiting(approvals: Iterable[Approval], asker: str, *kinds: Kind) -> Approval | None:
    """Return the first open approval of these kinds that a member has requested."""
    return next(
        (
            one
            for one in approvals
            if one.asker == asker and one.type in kinds and one.is_open and not one.overdue
        ),
        None,
    )


def id_of(key: str, secret: str) -> str:
    """Return the id of a tool call's approval, which is the same if the call is repeated.

    Args:
        key: the key of the call; other members may know it from the ids of mail.
        secret: the secret of the conversation, so that other members cannot predict the id.
    """
    return hmac.digest(secret.encode(), key.encode(), "sha256").hex()[: 2 * _ID_BYTES]


def id_of_call(key: str, secret: str) -> str:
    """Return the id of the approval for which a tool call waits, see `id_of`."""
    return id_of(f"{key}-permission", secret)


class NoSuchApproval(TeamError):
    """No approval has this id, or the member may not answer it."""


class AlreadyAnswered(TeamError):
    """The approval is no longer open."""

    def __init__(self, approval: Approval) -> None:
        self.approval = approval
        if approval.status is Verdict.EXPIRED:
            why = "is no longer open: nobody waits for its answer"
        else:
            why = f"was {approval.status} already"
        super().__init__(f"request {approval.id} {why}")
