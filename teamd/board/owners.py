"""Who can own a task, and whose tasks are to be given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from teamd.board.rules import TaskRefused
from teamd.messages import LEAD, TEAMD, USER
from teamd.states import Status
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.files.paths import TeamPaths
    from teamd.team.roster import Team

_GONE: Final = {Status.SHUTDOWN: "is shut down", Status.FAILED: "has failed"}


def resolved(paths: TeamPaths, name: str) -> str:
    """An owner as the roster writes it; nobody for nothing.

    Raises:
        TeamError: nobody has that name, or it is not at work.
    """
    wanted = name.strip()
    if not wanted:
        return ""
    if wanted.lower() in (LEAD, USER):
        return LEAD
    team = Roster(paths).read()
    member = team.get(wanted.removesuffix(f"@{team.name}"))
    if member.status in _GONE:
        raise TaskRefused(
            f"{member.name} {_GONE[member.status]} and can own no task; "
            f"`teamctl spawn {member.name} …` lets it go on"
        )
    return member.name


def gone_from(team: Team) -> Callable[[str], str | None]:
    """Says of an owner why it is not at work any more, or `None` where it is."""

    def why(owner: str) -> str | None:
        if owner.lower() in (LEAD, USER, TEAMD):
            return None
        member = team.find(owner)
        if member is None:
            return f"{owner} is not in the team any more"
        words = _GONE.get(member.status)
        return f"{member.name} {words}" if words else None

    return why
