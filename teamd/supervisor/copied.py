"""Spawning a teammate that works in a copy of its own: the copy first, then the spawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from teamd.copies import clone, record
from teamd.errors import TeamError
from teamd.supervisor.copying import CopyOutcome
from teamd.supervisor.spawn import SpawnRequest, check
from teamd.supervisor.team_context import TeamContext
from teamd.team.member import Member

Begin = Callable[[str], None]
Refuse = Callable[[TeamError], None]


def settle_copy(context: TeamContext, wanted: SpawnRequest) -> SpawnRequest:
    """Say whether a teammate is to have a copy: as asked, as before, else by the settings.

    A member's name is from here on as the roster writes it.
    """
    member = context.roster.team.find(wanted.name)
    name = member.name if member else wanted.name
    return replace(wanted, name=name, worktree=_wants_copy(context, member, wanted))


def lacks_copy(context: TeamContext, wanted: SpawnRequest) -> bool:
    """Return whether the working copy is still to be made that a teammate is to have."""
    wants = bool(wanted.worktree)
    return wants and record.find(context.settings.paths, wanted.name) is None


def spawn_with_copy(
    context: TeamContext, wanted: SpawnRequest, *, begin: Begin, refuse: Refuse
) -> None:
    """Make a teammate's working copy, and begin its spawn when that is done.

    Args:
        context: the team.
        wanted: the teammate, see `settle_copy`, which lacks its copy.
        begin: spawns it; gets what the copy lacks.
        refuse: called instead where no copy can be made, or where `begin` fails.

    Raises:
        TeamError: as for `spawn`, and nothing was begun.
    """
    name = wanted.name
    check(context, name, context.roster.team.find(name), wanted)

    def end(outcome: CopyOutcome) -> None:
        if outcome.killed:
            _take_back(context, name)
        if outcome.error:
            refuse(TeamError(f"{name} was not spawned: {outcome.error}"))
            return
        try:
            begin(outcome.lacks)
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
