"""Names of teammates, and ids of tasks and approvals, for the shell's completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from teamd.board.files import ids_in
from teamd.errors import TeamError
from teamd.files import find_team
from teamd.messages import LEAD, TEAMD
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    from teamd.files.paths import TeamPaths

    Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


def _completing(find: Callable[[TeamPaths], Iterable[str]]) -> Complete:
    """Return click's callback for what `find` finds in the team that is meant."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 -- click's
        options = context.find_root().params
        try:
            found = list(find(find_team.existing(options.get("team_dir"), options.get("team"))))
        except TeamError:
            return []  # whoever presses Tab wants no error
        return [name for name in found if name.lower().startswith(begun.lower())]

    return complete


def _members(team: TeamPaths) -> list[str]:
    return [member.name for member in Roster(team).read().members]


def _open_approvals(team: TeamPaths) -> Iterable[str]:
    from teamd.approvals.store import Approvals  # noqa: PLC0415 -- only for ids of approvals
    from teamd.mail.routing import Post  # noqa: PLC0415 -- the same

    found = Approvals(team, Post(team, durable=False, max_bytes=0)).open_ones()
    return (approval.id for approval in found if approval.to == LEAD)


teammates = _completing(_members)
boxes = _completing(lambda team: (*_members(team), LEAD))
logs = _completing(lambda team: (*_members(team), TEAMD))
tasks = _completing(lambda team: ids_in(team.tasks))
approvals = _completing(_open_approvals)
