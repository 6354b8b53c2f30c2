"""Spawning a teammate that works in a copy of its own: the copy first, then the spawn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from teamd.copies import clone, record
from teamd.errors import TeamError
from teamd.supervisor.spawn import SpawnRequest, check

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.supervisor.copying import Outcome
    from teamd.supervisor.team_context import TeamContext
    from teamd.team.member import Member

    Begin = Callable[[SpawnRequest, str], None]
    Refuse = Callable[[TeamError], None]


def spawn_with_copy(
    context: TeamContext, wanted: SpawnRequest, *, begin: Begin, refuse: Refuse
) -> None:
    """Begin a spawn: at once, or when the working copy is made that the teammate is to have.

    Args:
        context: the team.
        wanted: the teammate.
        begin: spawns it; gets what is wanted by the settings of now, and what the copy lacks.
        refuse: called instead where no copy can be made, or where `begin` fails after that.

    Raises:
        TeamError: as for `spawn`, and nothing was begun.
    """
    member = context.roster.team.find(wanted.name)
    name = member.name if member else wanted.name
    given = replace(wanted, worktree=_wants_copy(context, member, wanted))
    if not given.worktree or record.find(context.settings.paths, name) is not None:
        begin(given, "")
        return
    check(context, name, member, given)

    def end(outcome: Outcome) -> None:
        if outcome.killed:
            _take_back(context, name)
        if outcome.error:
            refuse(TeamError(f"{name} was not spawned: {outcome.error}"))
            return
        try:
            begin(given, outcome.lacks)
        except TeamError as error:
            _take_back(context, name)
            refuse(error)
        except Exception as error:  # noqa: BLE001 -- as for a request, see ControlInbox
            context.journal.error("not done", error, name=name)
            refuse(
                TeamError(f"internal error ({type(error).__name__}); `teamctl logs teamd` has it")
            )

    team = context.roster.team.name
    context.copies.make(name, team, context.settings.now.team.workspace, end)


def _wants_copy(context: TeamContext, member: Member | None, wanted: SpawnRequest) -> bool:
    """Return whether a teammate is to have a copy: as asked, as before, else by the settings."""
    if wanted.worktree is not None:
        return wanted.worktree
    if member is not None and (member.worktree or not wanted.fresh):
        return member.worktree
    return context.settings.now.gives_copy(wanted.name)


def _take_back(context: TeamContext, name: str) -> None:
    """Remove a copy in which nobody has begun to work, or what is left of one."""
    settings = context.settings
    try:
        clone.remove_copy(settings.paths, name, settings.now.team.workspace)
    except (TeamError, OSError) as error:
        context.journal.error("working copy not removed", error, name=name)
