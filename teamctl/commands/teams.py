"""`teamctl teams`: the teams of this project."""

from __future__ import annotations

from pathlib import Path

import click

from teamctl import output
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode
from teamd.files.find_team import project
from teamd.team.teams import teams


@click.command()
@output.json_option
@team_options
@pass_choice
def command(choice: Choice, *, as_json: bool) -> int:
    """List the teams of this project: .team/ and those in .teams/."""
    chosen = choice.team_dir and choice.existing().home
    found = teams(chosen or project(Path.cwd()))
    if as_json:
        output.print_json({"teams": [team.to_json() for team in found]})
        return ExitCode.DONE
    if not found:
        click.echo("no teams here; `teamd start` makes one, `teamctl create NAME` one by name")
        return ExitCode.DONE
    table = output.table(("TEAM", "TEAMD", "MEMBERS", "STATUS"), numbers=("MEMBERS",))
    for team in found:
        states = ", ".join(f"{number} {status}" for status, number in team.statuses.items())
        runs = "-" if team.pid is None else str(team.pid)
        table.add_row(team.name, runs, str(team.members), states or "-")
    output.console().print(table)
    return ExitCode.DONE
