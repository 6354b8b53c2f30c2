"""`teamctl reject`: say no to what a teammate asks."""

from __future__ import annotations

import click

from teamctl.approvals import answer
from teamctl.completion import approvals
from teamd.cli import Choice, pass_choice, team_options


@click.command()
@click.argument("request_id", metavar="ID", shell_complete=approvals)
@click.option("--reason", help="Why, and what to change; - reads standard input.")
@team_options
@pass_choice
def command(choice: Choice, request_id: str, *, reason: str | None) -> int:
    """Reject ID, such as a plan; who asked is told by mail, and may ask again.

    The beginning of an id is enough where no other begins so. `teamctl requests` lists them.
    """
    return answer(choice, request_id, approve=False, reason=reason)
