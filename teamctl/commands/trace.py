"""`teamctl trace`: where a message is, and when it came there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from teamctl import output
from teamd import commandline, terminal
from teamd.commandline import team_options
from teamd.mail import trace as tracing
from teamd.messages import USER

if TYPE_CHECKING:
    from teamd.cli import Choice


@commandline.command()
@commandline.argument("message_id", metavar="ID")
@output.json_option
@team_options
def command(choice: Choice, message_id: str, *, as_json: bool) -> None:
    """Show when the message ID was sent, taken and put into a conversation, or where it is now.

    The first characters of an id are enough if no other id begins with them. A broadcast has a
    line for each receiver.
    """
    ways = tracing.trace(choice.existing(), message_id)
    if as_json:
        output.print_json({"id": ways[0].id, "receivers": [way.to_json() for way in ways]})
        return
    for way in ways:
        whose = terminal.style(output.plain(f"{way.id} to {way.to}"), bold=True)
        terminal.echo(f"{whose}: {output.plain('; '.join(_steps(way)))}")


def _steps(way: tracing.Way) -> list[str]:
    """Say what has happened to it so far, and what has not."""
    steps = [f"sent{_when(way.sent)} by {way.sender}"]
    if way.taken is not None:
        steps.append(f"taken{_when(way.taken)}")
    match way.stage:
        case tracing.DeliveryStage.QUEUED:
            steps.append(f"queued at position {way.position} in {way.file}")
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
