"""`teamctl create`: a new team by name, and its supervisor."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode, TeamError
from teamd.files import pidfile
from teamd.files.find_team import project
from teamd.files.paths import TeamPaths
from teamd.messages import TEAM_FOLDER
from teamd.team import teams


@click.command()
@click.argument("name")
@team_options
@pass_choice
def command(choice: Choice, name: str) -> int:
    """Create the team NAME in .teams/ of this project and start its teamd.

    The team uses the project's team.toml until it has one of its own. Its limits apply to it
    alone. `teamctl --team NAME …` reaches it.
    """
    home = choice.existing().home if choice.team_dir else project(Path.cwd())
    own = choice.settings(TeamPaths(home / TEAM_FOLDER)).team.name
    if name.lower() == own.lower():  # also while that one is not there yet: mail goes by names
        raise TeamError(f"the project's own team is called {own!r} already; take another name")
    paths = teams.make(home, name)
    asyncio.run(teams.start(paths))
    pid = pidfile.check(paths).pid
    click.echo(f"team {name} is there, its teamd (pid {pid}) runs; use `teamctl --team {name} …`")
    return ExitCode.DONE
