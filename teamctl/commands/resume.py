"""`teamctl resume`: let a paused teammate go on."""

from __future__ import annotations

from typing import Final

import click

from teamctl import output
from teamctl.completion import teammates
from teamd.commandline import Choice, pass_choice, team_options
from teamd.errors import ExitCode, TeamError
from teamd.store import requests

REQUEST_SECONDS: Final = 30.0


@click.command()
@click.argument("name", shell_complete=teammates)
@output.json_option
@team_options
@pass_choice
def command(choice: Choice, name: str, *, as_json: bool) -> int:
    """Read team.toml again, then let NAME go on where it was paused."""
    answer = requests.ask(
        choice.existing(), "resume", {"name": name}, timeout_seconds=REQUEST_SECONDS
    )
    if answer.exit_code != ExitCode.DONE:
        raise TeamError(answer.text)
    if as_json:
        output.print_json(dict(answer.data))
    else:
        click.echo(answer.text)
    return ExitCode.DONE
