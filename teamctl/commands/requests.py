"""What waits for an answer, and the answers: `teamctl requests`, `approve` and `reject`."""

from __future__ import annotations

import click

from teamctl import arguments, output
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.cli import Choice, team_options
from teamd.messages import LEAD

_WORDS = {Kind.PLAN: "plan", Kind.SHUTDOWN: "shutdown"}

_id_argument = click.argument("request_id", metavar="ID", shell_complete=arguments.approvals)


@click.command()
@output.json_option
@team_options
def command(choice: Choice, *, as_json: bool) -> None:
    """List the open requests, such as plans that wait for approval.

    `teamctl approve ID` and `teamctl reject ID` answer those that are addressed to lead.
    """
    found = _approvals(choice).open_ones()
    if as_json:
        output.print_json({"requests": [approval.to_json() for approval in found]})
        return
    for approval in found:
        _show(approval)
    if not found:
        click.echo("no open requests")


@click.command()
@_id_argument
@click.option("--feedback", help="What the teammate should keep in mind; - reads standard input.")
@team_options
def approve(choice: Choice, request_id: str, *, feedback: str | None) -> None:
    """Approve the request ID, such as a plan.

    The teammate that asked gets your answer by mail and goes on. `teamctl requests` lists the
    ids; the first characters of one are enough if no other id begins with them.
    """
    _answer(choice, request_id, approve=True, reason=feedback)


@click.command()
@_id_argument
@click.option("--reason", help="Why, and what should change; - reads standard input.")
@team_options
def reject(choice: Choice, request_id: str, *, reason: str | None) -> None:
    """Reject the request ID, such as a plan.

    The teammate that asked gets your answer by mail and may ask again. `teamctl requests` lists
    the ids; the first characters of one are enough if no other id begins with them.
    """
    _answer(choice, request_id, approve=False, reason=reason)


def _approvals(choice: Choice) -> Approvals:
    post = arguments.team_post(choice)
    return Approvals(post.paths, post)


def _answer(choice: Choice, beginning: str, *, approve: bool, reason: str | None) -> None:
    """Answer the approval whose id begins so, and say what was answered.

    Raises:
        TeamError: there is none, it is not yours to answer, or it is open no more.
    """
    asked = _approvals(choice)
    approval = asked.match(beginning)
    words = arguments.text_or_stdin(reason or "").strip()
    answered = asked.answer(approval.id, by=LEAD, approve=approve, reason=words)
    what = _WORDS.get(answered.type, answered.type)  # type: ignore[call-overload] # a type is a text
    said = f"{answered.status} the {what} of {answered.asker} ({answered.id})"
    click.echo(output.plain(said))


def _show(approval: Approval) -> None:
    who = f"{output.plain(approval.asker)} → {output.plain(approval.to)}"
    about = f"[{output.plain(approval.type)}] {output.ago(approval.asked)} ago"
    click.echo(f"{click.style(output.plain(approval.id), bold=True)} {who} {about}")
    for line in output.plain(approval.content).splitlines():
        click.echo(f"  {line}")
