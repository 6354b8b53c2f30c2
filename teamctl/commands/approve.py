"""`teamctl approve`: say yes to what a teammate asks."""

from __future__ import annotations

import click

from teamctl.approvals import answer
from teamctl.completion import approvals
from teamd.cli import Choice, pass_choice, team_options


@click.command()
@click.argument("request_id", metavar="ID", shell_complete=approvals)
@click.option("--feedback", help="What the teammate should keep in mind; - reads standard input.")
@team_options
@pass_choice
def command(choice: Choice, request_id: str, *, feedback: str | None) -> int:
    """Approve the request ID, such as a plan.

    The teammate that asked gets your answer by mail and goes on. `teamctl requests` lists the
    ids; the first characters of one are enough if no other id begins with them.
    """
    return answer(choice, request_id, approve=True, reason=feedback)
