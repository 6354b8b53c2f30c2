"""Names of teammates, and ids of tasks, for the shell's completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.errors import TeamError
from teamd.protocol import LEAD, TEAMD
from teamd.store import places
from teamd.store.board_files import ids_in
from teamd.store.roster import Roster

if TYPE_CHECKING:
    import click


def teammates(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 -- click's
    """The teammates whose names begin so."""
    return [name for name in _members(context) if name.lower().startswith(begun.lower())]


def boxes(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 -- click's
    """Those who have an inbox."""
    return [name for name in (*_members(context), LEAD) if name.startswith(begun)]


def logs(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 -- click's
    """Those who have a log."""
    return [name for name in (*_members(context), TEAMD) if name.startswith(begun)]


def tasks(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 -- click's
    """The ids of the board that begin so."""
    named = context.find_root().params.get("team_dir")
    try:
        return [task for task in ids_in(places.existing(named).tasks) if task.startswith(begun)]
    except TeamError:
        return []


def _members(context: click.Context) -> list[str]:
    options = context.find_root().params
    try:
        return [
            member.name
            for member in Roster(places.existing(options.get("team_dir"), options.get("team")))
            .read()
            .members
        ]
    except TeamError:
        return []  # whoever presses Tab wants no error
