"""`teamctl requests`: what waits for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from teamctl import output
from teamctl.approvals import approvals
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode

if TYPE_CHECKING:
    from teamd.approvals.approval import Approval


@click.command()
@output.json_option
@team_options
@pass_choice
def command(choice: Choice, *, as_json: bool) -> int:
    """List the open requests, such as plans that wait for approval.

    `teamctl approve ID` and `teamctl reject ID` answer those that are addressed to lead.
    """
    found = approvals(choice).open_ones()
    if as_json:
        output.print_json({"requests": [approval.to_json() for approval in found]})
        return ExitCode.DONE
    for approval in found:
        _show(approval)
    if not found:
        click.echo("no open requests")
    return ExitCode.DONE


def _show(approval: Approval) -> None:
    who = f"{output.plain(approval.asker)} → {output.plain(approval.to)}"
    about = f"[{output.plain(approval.type)}] {output.ago(approval.asked)} ago"
    click.echo(f"{click.style(output.plain(approval.id), bold=True)} {who} {about}")
    for line in output.plain(approval.content).splitlines():
        click.echo(f"  {line}")
