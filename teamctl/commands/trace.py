"""`teamctl trace`: the place and the history of a message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Final

import click

from teamctl.render import output, tables
from teamctl.render.message_table import NO_MESSAGES, MessageRow, message_table
from teamctl.tail import lines_back
from teamd.command_line import terminal
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.mail import trace as tracing
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, USER, Message
from teamd.team.roster import Roster
from teamd.transcript.file import decode
from teamd.transcript.records import mail_in

_LISTED: Final = 20
_TAIL_BYTES: Final = 1 << 18
_MAIL: Final = b'"mail"'


@click.command()
@click.argument("message_id", metavar="ID", required=False)
@output.json_option
@team_options
def command(choice: TeamOptions, message_id: str | None, *, as_json: bool) -> None:
    """Show when the message ID was sent, taken and put into a conversation, or where it is now.

    The first characters of an id are enough if no other id begins with them. A broadcast has a
    line for each receiver. Without ID, the command lists the latest messages of the team.
    """
    paths = choice.existing()
    if message_id is None:
        _list(choice, paths, as_json=as_json)
        return
    ways = tracing.trace(paths, message_id)
    if as_json:
        output.print_json({"id": ways[0].id, "receivers": [way.to_json() for way in ways]})
        return
    for way in ways:
        whose = terminal.style(output.plain(f"{way.id} to {way.to}"), bold=True)
        click.echo(f"{whose}: {output.plain('; '.join(_steps(way)))}")


def _list(choice: TeamOptions, paths: TeamPaths, *, as_json: bool) -> None:
    """Print the latest messages, the last one at the end."""
    latest = sorted(_latest(paths), key=lambda found: found[0].timestamp)[-_LISTED:]
    if as_json:
        output.print_json(
            {"messages": [{**one.to_json(), "to": one.to, "state": how} for one, how in latest]}
        )
    elif latest:
        tables.console().print(message_table(_row(*found) for found in latest))
    else:
        click.echo(choice.add_team_option(NO_MESSAGES))


def _row(one: Message, state: str) -> MessageRow:
    return one.id, one.sender, one.to, one.timestamp, state, one.content


def _latest(paths: TeamPaths) -> Iterator[tuple[Message, str]]:
    """Yield the waiting messages and the last delivered ones, each with its state."""
    names = [*(member.name for member in Roster(paths).read().members), LEAD, USER]
    waiting: set[str] = set()
    for name in dict.fromkeys(names):
        for message in Mailbox(paths, name, durable=False).peek():
            waiting.add(message.id)
            yield message, "waits"
    for path in directories.list_files(paths.transcripts, "*.jsonl"):
        for line in _last_lines(path):
            for message in mail_in(decode(line)) if _MAIL in line else ():
                if message.id not in waiting:
                    to = message.to if path.stem == USER else path.stem
                    yield replace(message, to=to), "delivered"


def _last_lines(path: Path) -> list[bytes]:
    """Return the whole lines at the end of a file, which may be very long."""
    start = files.size(path) - _TAIL_BYTES
    found = takewhile(lambda one: one[0] >= start, lines_back(path))
    return [line for _, line in found][::-1]


def _steps(way: tracing.MessageTrace) -> list[str]:
    """Return the steps of a message up to its present state."""
    steps = [f"sent{_when(way.sent)} by {way.sender}"]
    if way.taken is not None:
        steps.append(f"taken{_when(way.taken)}")
    match way.stage:
        case tracing.DeliveryStage.QUEUED:
            steps.append(f"queued at position {way.position} in {way.file}")
        case tracing.DeliveryStage.CROSSING:
            steps.append(f"on its way to another host in {way.file}")
        case tracing.DeliveryStage.ARRIVED:
            steps.append(f"arrived; `teamctl trace {way.id}` there shows the rest")
        case tracing.DeliveryStage.TAKEN:
            steps.append(f"under way in {way.file}")
        case tracing.DeliveryStage.REJECTED:
            steps.append(f"rejected, and kept in {way.file}")
        case tracing.DeliveryStage.DELIVERED:
            what = "shown to you" if Path(way.file).stem == USER else "in the conversation"
            steps.append(f"{what}{_when(way.delivered)}")
    return steps


def _when(moment: float | None) -> str:
    return "" if moment is None else f" {output.moment(moment)}"
