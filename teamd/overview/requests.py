"""Open requests, with the commands that answer them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.messages import USER
from teamd.team.roster import Team

_ASKS: Final = {Kind.PERMISSION: "asks to run", Kind.PLAN: "asks to approve a plan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """An unanswered request.

    Attributes:
        yours: whether the person, not an agent, is to answer it.
        approve: the command that approves it.
        reject: the command that rejects it.
    """

    approval: Approval
    yours: bool
    approve: str
    reject: str

    @property
    def sentence(self) -> str:
        """The request as one line: the whole command, or the beginning of the plan."""
        asks = _ASKS.get(self.approval.type, f"asks ({self.approval.type})")  # type: ignore[call-overload] # a type is a text
        return f"{self.approval.asker} {asks}: {' '.join(self.approval.what.split())}"

    def to_json(self) -> dict[str, Any]:
        """The request as `--json` shows it."""
        said = {"what": self.approval.what, "yours": self.yours}
        commands = {"approve_command": self.approve, "reject_command": self.reject}
        return {**self.approval.to_json(), **said, **commands}


def read_requests(paths: TeamPaths, team: Team) -> list[OpenRequest]:
    """Return the open requests, the oldest first."""
    return describe_requests(paths, team, read_approvals(paths))


def read_approvals(paths: TeamPaths) -> list[Approval]:
    """Return the unanswered approvals, the oldest first."""
    return Approvals(
        paths, MailRouter(paths, durable=False, max_bytes=0)
    ).open_ones()  # the router sends nothing here


def describe_requests(
    paths: TeamPaths, team: Team, approvals: Iterable[Approval]
) -> list[OpenRequest]:
    """Return the approvals that are not overdue, with the commands that answer them."""
    return [_open(paths, team, one) for one in approvals if not one.overdue]


def _open(paths: TeamPaths, team: Team, approval: Approval) -> OpenRequest:
    persons = approval.type == Kind.PERMISSION or approval.to.lower() in (USER, team.person)
    return OpenRequest(
        approval=approval,
        yours=persons and approval.may_be_answered_by(USER),
        approve=paths.team_command(f"teamctl approve {approval.id}"),
        reject=paths.team_command(f"teamctl reject {approval.id}"),
    )
