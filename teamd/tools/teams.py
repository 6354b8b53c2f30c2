"""Tools for whoever leads: other teams, made and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from teamd.errors import ExitCode
from teamd.team import teams
from teamd.tools import Input, Tool, ToolError
from teamd.tools.asking import Asking

if TYPE_CHECKING:
    from pathlib import Path

    from teamd.files.paths import TeamPaths

_ANSWER_SECONDS = 60.0
_MARGIN_SECONDS = 10.0


class TeamInput(Input):
    """What `create_team` and `delete_team` take."""

    name: str = Field(description="up to 64 of A-Z a-z 0-9 _ -")


class CreateTeam(Tool[TeamInput]):
    """Makes a team and starts its supervisor.

    Args:
        project: the folder whose `.teams/` gets it.
    """

    name: ClassVar[str] = "create_team"
    description: ClassVar[str] = (
        "Make another team, with limits of its own. spawn_teammate with `team` puts somebody into "
        "it, and mail reaches its members as name@team."
    )
    Input = TeamInput
    acts: ClassVar[bool] = False

    def __init__(self, project: Path) -> None:
        self._project = project

    async def call(self, arguments: TeamInput) -> str:
        """Make it."""
        await teams.start(teams.make(self._project, arguments.name))
        return f"the team {arguments.name} is there"


class DeleteTeam(Tool[TeamInput]):
    """Asks a team's members to shut down and removes it.

    Args:
        own: the team of whoever asks; the other one is of the same project.
        sender: who asks.
    """

    name: ClassVar[str] = "delete_team"
    description: ClassVar[str] = (
        "Ask everybody in a team to shut down, then remove it with all that it has written. While "
        "somebody rejects, it stays."
    )
    Input = TeamInput
    acts: ClassVar[bool] = False

    def __init__(self, own: TeamPaths, sender: str) -> None:
        self._own = own
        self._sender = sender

    async def call_once(self, arguments: TeamInput, key: str) -> str:
        """Ask, wait, remove; the request has an id that follows from the call."""
        team = teams.deletable(teams.found(self._own.home, arguments.name))
        if team.paths.root == self._own.root:
            raise ToolError(
                f"you are in this team; the person deletes it with `teamctl delete {team.name}`"
            )
        if teams.must_be_asked(team):
            await Asking(team.paths, self._sender).ask(
                "shutdown",
                {"all": True, "seconds": _ANSWER_SECONDS},
                key=key,
                timeout_seconds=_ANSWER_SECONDS + _MARGIN_SECONDS,
                # Who did not answer in time has been ended: nobody is there for whom it stays.
                enough=(ExitCode.DONE, ExitCode.DEADLINE),
            )
        await teams.stop(team.paths)
        teams.remove(team.paths)
        return f"the team {team.name} is deleted"
