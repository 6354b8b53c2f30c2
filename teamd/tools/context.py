"""Everything that the tools of one teammate are made from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.control import Asking
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.masking import Mask
from teamd.sandbox.shells import Shell
from teamd.settings.skills import Skill
from teamd.team.roster import Roster
from teamd.tools.background import Jobs
from teamd.tools.push import Pushes
from teamd.tools.versions import Versions
from teamd.tools.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The parts of a teammate that its tools use: a tool's parameters are named as these fields.

    Attributes:
        member: the teammate's name.
        holder: which tools it has besides those that everybody has, see `KnownTool.holder`.
        shell: starts its commands.
        pushes: its pushes, if it has a working copy.
        timeout_seconds: the time limit of a command that does not ask for another.
        output_bytes: how much of a tool's output the model sees.
        mask: keeps secrets out of results.
        versions: the versions of files that it knows.
        receivers: returns the recent receivers of a text.
        begin_task: called when it has claimed a task.
        current_task: returns the name of its task.
        secret: returns the secret of the conversation, see `id_of`.
        superior: returns the address of the approver of its plans.
        report_answer: makes the asker of a shutdown look at a rejection at once.
        asking: returns the supervisor of the named team, or of this team for `None`.
        address: returns its own address, as members of other teams know it.
        other_approvals: returns the stores of other teams, which may have members that it leads.
        delegate: runs a subagent; the call's key names its conversation.
    """

    member: str
    holder: frozenset[str]
    paths: TeamPaths
    shell: Shell
    pushes: Pushes | None
    timeout_seconds: float
    output_bytes: int
    mask: Mask
    workspace: Workspace
    versions: Versions
    jobs: Jobs
    skills: Callable[[], Sequence[Skill]]
    post: MailRouter
    mailbox: Mailbox
    receivers: Callable[[str], Iterable[str]]
    board: Board
    begin_task: Callable[[], None]
    approvals: Approvals
    current_task: Callable[[], str]
    secret: Callable[[], str]
    superior: Callable[[], str]
    report_answer: Callable[[str], None]
    roster: Roster
    hosts: FarHosts | None
    asking: Callable[[str | None], Asking]
    address: Callable[[], str]
    other_approvals: Callable[[], Iterable[Approvals]]
    delegate: Callable[..., Awaitable[str]]
