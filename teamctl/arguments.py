"""The arguments of commands: options, and names that the shell completes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeAlias

import click

from teamd.board.files import ids_in
from teamd.command_line.options import Seconds
from teamd.errors import TeamError
from teamd.files import find_team
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostPlaces
from teamd.messages import LEAD, TEAMD, USER
from teamd.team.roster import Roster

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


REQUEST_SECONDS: Final = 30.0  # until the supervisor has answered
COPY_SECONDS: Final = 600.0  # the same, where it makes a working copy first

fresh_option = click.option(
    "--fresh", is_flag=True, help="Begin a new conversation; the transcript keeps the old one."
)
copy_option = click.option(
    "--worktree/--no-worktree",
    default=None,
    help="Let it work in a copy of its own, or in the shared folder  [default: as before].",
)
timeout_option = click.option(
    "--timeout",
    type=Seconds(zero=False),
    callback=lambda _, __, seconds: math.inf if seconds is None else seconds,
    help="How many seconds to wait at most  [default: no limit].",
)
grace_option = partial(
    click.option,
    "--timeout",
    type=Seconds(zero=True),
    default=10.0,
    show_default=True,
)


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


def _elsewhere(team: TeamPaths, *, address: bool) -> Iterator[str]:
    """Yield the members of other hosts, as far as those have told of them.

    Args:
        team: that is meant.
        address: whether as mail has them, with the team; commands do without.
    """
    from teamd.hosts import rosters  # noqa: PLC0415 -- the same

    places = HostPlaces(team)
    for host in places.known():
        if (roster := rosters.read(places.roster(host))) is not None:
            at = f"{roster.team}@{host}" if address else host
            yield from (f"{member.name}@{at}" for member in roster.members)


def _answerable(team: TeamPaths) -> Iterable[str]:
    from teamctl.post import open_approvals  # noqa: PLC0415 -- whoever presses Tab

    return (one.id for one in open_approvals(team) if one.may_be_answered_by(USER))


def _tasks(team: TeamPaths) -> list[str]:
    return ids_in(team.tasks)


teammates = _completing(_members)
everywhere = _completing(lambda team: (*_members(team), *_elsewhere(team, address=False)))
boxes = _completing(lambda team: (*_members(team), LEAD))
receivers = _completing(lambda team: (*_members(team), LEAD, *_elsewhere(team, address=True)))
logs = _completing(lambda team: (*_members(team), TEAMD))
tasks = _completing(_tasks)
approvals = _completing(_answerable)
