"""`teamctl reject`: say no to what a teammate asks."""

from __future__ import annotations

import click

from teamctl.approvals import answer
from teamctl.completion import approvals
from teamd.cli import Choice, pass_choice, team_options


@click.command()
@click.argument("request_id", metavar="ID", shell_complete=approvals)
@click.option("--reason", help="Why, and what should change; - reads standard input.")
@team_options
@pass_choice
def command(choice: Choice, request_id: str, *, reason: str | None) -> int:
    """Reject the request ID, such as a plan.

    The teammate that asked gets your answer by mail and may ask again. `teamctl requests` lists
    the ids; the first characters of one are enough if no other id begins with them.
    """
    return answer(choice, request_id, approve=False, reason=reason)
