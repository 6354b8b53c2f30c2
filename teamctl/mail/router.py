"""Opens the mail router, the merge queue and the approvals of a command's team."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.approvals.approval import Approval
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.messages import MAX_MESSAGE_BYTES, TEAMD

if TYPE_CHECKING:
    from teamd.approvals.store import Approvals
    from teamd.command_line.run import TeamOptions
    from teamd.hosts.far import FarHosts
    from teamd.merges.queue import Queue
    from teamd.settings import Settings


def team_post(choice: TeamOptions) -> MailRouter:
    """Return the mail router of the team, with the durability and limits of its settings."""
    paths = choice.existing()
    if choice.without_settings(paths):  # loading them takes longer than sending mail
        return MailRouter(paths, durable=True, max_bytes=MAX_MESSAGE_BYTES)
    settings = choice.settings(paths)
    mail, durable = settings.mail, settings.mail.durability == "disk"
    return MailRouter(
        paths,
        durable=durable,
        max_bytes=mail.max_message_bytes,
        max_inbox_bytes=mail.max_inbox_bytes,
        hosts=_far_hosts(paths, settings, durable=durable),
    )


def other_hosts(choice: TeamOptions) -> FarHosts:
    """Return the other hosts of the team.

    Raises:
        TeamError: this host has no name among them.
    """
    return team_post(choice).other_hosts()


def _far_hosts(paths: TeamPaths, settings: Settings, *, durable: bool) -> FarHosts | None:
    if settings.hosts.name is None:
        return None
    from teamd.hosts.far import FarHosts  # noqa: PLC0415 -- only if there are other hosts

    return FarHosts.of(paths, settings.hosts, durable=durable)


def team_queue(choice: TeamOptions) -> Queue:
    """Return the merge queue of the team, for changing it."""
    from teamd.board.board import Board  # noqa: PLC0415 -- only to change it
    from teamd.merges.queue import Queue  # noqa: PLC0415 -- the same

    post = team_post(choice)
    return Queue(Board(post.paths, post, TEAMD, durable=post.durable))


def all_approvals(team: TeamPaths) -> Approvals:
    """Return the approvals of a team, for reading them."""
    from teamd.approvals.store import Approvals  # noqa: PLC0415 -- only to read them

    return Approvals(team, MailRouter(team, durable=False, max_bytes=0))


def open_approvals(team: TeamPaths) -> list[Approval]:
    """Return the approvals that wait for an answer."""
    return all_approvals(team).open_ones()
