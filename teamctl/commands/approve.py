"""`teamctl approve`: say yes to what a teammate asks."""

from __future__ import annotations

import click

from teamctl.approvals import answer
from teamctl.completion import approvals
from teamd.cli import Choice, pass_choice, team_options


@click.command()
@click.argument("request_id", metavar="ID", shell_complete=approvals)
@click.option("--feedback", help="What to mind; - reads standard input.")
@team_options
@pass_choice
def command(choice: Choice, request_id: str, *, feedback: str | None) -> int:
    """Approve ID, such as a plan; who asked is told by mail, and goes on.

    The beginning of an id is enough where no other begins so. `teamctl requests` lists them.
    """
    return answer(choice, request_id, approve=True, reason=feedback)
