"""`teamctl delete`: end a team by name and remove it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from teamd import control
from teamd.cli import Choice, Seconds, pass_choice, team_options
from teamd.errors import ExitCode, TeamError
from teamd.files.find_team import project
from teamd.team import teams

if TYPE_CHECKING:
    from teamd.files.paths import TeamPaths

_MARGIN_SECONDS = 10.0  # between the kill and the answer


@click.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Do not ask: end every teammate and delete the team.")
@click.option(
    "--timeout",
    type=Seconds(zero=True),
    default=10.0,
    show_default=True,
    help="How many seconds the teammates have to answer.",
)
@team_options
@pass_choice
def command(choice: Choice, name: str, *, force: bool, timeout: float) -> int:
    """Ask everyone in the team NAME to shut down, then delete the team and all its files.

    If a teammate rejects the shutdown, the team stays. Only teams in .teams/ can be deleted.
    """
    home = choice.existing().home if choice.team_dir else project(Path.cwd())
    team = teams.deletable(teams.found(home, name))
    if not force and teams.must_be_asked(team):
        _ask(team.paths, timeout)
    asyncio.run(teams.stop(team.paths))
    teams.remove(team.paths)
    click.echo(f"team {team.name} is deleted")
    return ExitCode.DONE


def _ask(paths: TeamPaths, seconds: float) -> None:
    reply = control.ask(
        paths,
        "shutdown",
        {"all": True, "seconds": seconds},
        timeout_seconds=seconds + _MARGIN_SECONDS,
    )
    if reply.exit_code == ExitCode.REFUSED:
        raise TeamError(f"{reply.text}; the team stays, or --force")
    click.echo(reply.text)
