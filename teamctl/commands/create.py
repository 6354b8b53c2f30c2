"""`teamctl create`: a new team by name, and its supervisor."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from teamd.commandline import Choice, pass_choice, team_options
from teamd.errors import ExitCode
from teamd.store import running, teams
from teamd.store.paths import project


@click.command()
@click.argument("name")
@team_options
@pass_choice
def command(choice: Choice, name: str) -> int:
    """Make the team NAME in .teams/ of this project and start its teamd.

    Its settings are those of the project's team.toml, unless it has a team.toml of its own; its
    limits count for it alone. `teamctl --team NAME …` reaches it.
    """
    home = choice.existing().home if choice.team_dir else project(Path.cwd())
    paths = teams.make(home, name)
    asyncio.run(teams.start(paths))
    pid = running.check(paths).pid
    click.echo(f"team {name} is there, its teamd (pid {pid}) runs; use `teamctl --team {name} …`")
    return ExitCode.DONE
