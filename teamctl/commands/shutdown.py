"""`teamctl shutdown`: end a teammate, or all of them."""

from __future__ import annotations

from typing import Final

import click

from teamctl.completion import teammates
from teamd.commandline import Choice, Seconds, pass_choice, team_options
from teamd.errors import ExitCode, TeamError
from teamd.store import requests

GRACE_SECONDS: Final = 10.0
_MARGIN_SECONDS: Final = 10.0  # between the kill and the answer


@click.command()
@click.argument("name", required=False, shell_complete=teammates)
@click.option("--all", "everybody", is_flag=True, help="End every teammate.")
@click.option("--force", is_flag=True, help="Kill at once.")
@click.option(
    "--timeout",
    type=Seconds(zero=True),
    default=GRACE_SECONDS,
    show_default=True,
    help="Seconds until force is used.",
)
@team_options
@pass_choice
def command(
    choice: Choice, name: str | None, *, everybody: bool, force: bool, timeout: float
) -> int:
    """End NAME; its conversation is kept, and `teamctl spawn NAME …` goes on with it."""
    if (name is None) == (not everybody):
        raise click.UsageError("name a teammate, or give --all")
    seconds = 0.0 if force else timeout
    arguments = {"all": True} if everybody else {"name": name}
    answer = requests.ask(
        choice.existing(),
        "shutdown",
        {**arguments, "seconds": seconds},
        timeout_seconds=seconds + _MARGIN_SECONDS,
    )
    if answer.exit_code == ExitCode.REFUSED:
        raise TeamError(answer.text)
    click.echo(answer.text, err=answer.exit_code != ExitCode.DONE)
    return answer.exit_code
