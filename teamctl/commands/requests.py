"""`teamctl requests`: what waits for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from teamctl import output
from teamctl.questions import approvals
from teamd.commandline import Choice, pass_choice, team_options
from teamd.errors import ExitCode

if TYPE_CHECKING:
    from teamd.store.question import Question


@click.command()
@output.json_option
@team_options
@pass_choice
def command(choice: Choice, *, as_json: bool) -> int:
    """List the open requests, such as plans that wait for approval.

    `teamctl approve ID` and `teamctl reject ID` answer those that are addressed to lead.
    """
    questions = approvals(choice).open_ones()
    if as_json:
        output.print_json({"requests": [question.to_json() for question in questions]})
        return ExitCode.DONE
    for question in questions:
        _show(question)
    if not questions:
        click.echo("no open requests")
    return ExitCode.DONE


def _show(question: Question) -> None:
    who = f"{output.plain(question.asker)} → {output.plain(question.to)}"
    about = f"[{output.plain(question.type)}] {output.ago(question.asked)} ago"
    click.echo(f"{click.style(output.plain(question.id), bold=True)} {who} {about}")
    for line in output.plain(question.content).splitlines():
        click.echo(f"  {line}")
