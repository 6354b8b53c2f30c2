"""`teamctl resume`: let a paused teammate go on."""

from __future__ import annotations

from typing import Final

import click

from teamctl import output
from teamctl.completion import teammates
from teamd import control
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode

REQUEST_SECONDS: Final = 30.0


@click.command()
@click.argument("name", shell_complete=teammates)
@output.json_option
@team_options
@pass_choice
def command(choice: Choice, name: str, *, as_json: bool) -> int:
    """Read team.toml again, then let NAME go on where it was paused."""
    reply = control.ask(
        choice.existing(), "resume", {"name": name}, timeout_seconds=REQUEST_SECONDS
    )
    reply.raise_unless_done()
    if as_json:
        output.print_json(dict(reply.data))
    else:
        click.echo(reply.text)
    return ExitCode.DONE
