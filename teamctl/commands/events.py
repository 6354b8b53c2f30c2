"""`teamctl events`: everything that happens in the team, for scripts."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import click

from teamctl import tail
from teamctl.arguments import SINCE_HELP, parse_when
from teamctl.events import Event, EventKind, EventStream
from teamctl.render import output
from teamd.command_line import terminal
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions

_HOUR: Final = 3600
_COLOURS: Final = {
    **dict.fromkeys(
        (EventKind.CRASHED, EventKind.FAILED, EventKind.STUCK, EventKind.MAIL_REJECTED), "red"
    ),
    **dict.fromkeys((EventKind.RETRY, EventKind.APPROVAL_ASKED, EventKind.MAIL_HELD), "yellow"),
}
_KIND_WIDTH: Final = max(map(len, EventKind))
_NAME_WIDTH: Final = 8  # the width of most names; later names are not yet known


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep showing what happens.")
@click.option("--since", metavar="WHEN", help=SINCE_HELP)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document; with -f, one event a line."
)
@team_options
def command(choice: TeamOptions, *, follow: bool, since: str | None, as_json: bool) -> None:
    """Show the events of the team: mail, turns, tool calls, tasks, approvals, crashes.

    Without --since, it shows the last hour, or with -f only events from now on. `teamctl
    help files` lists the kinds of events. Looking changes nothing.
    """
    paths = choice.existing()
    now = time.time()
    began = parse_when(since) if since is not None else now if follow else now - _HOUR
    stream = EventStream(paths, began)
    if not follow:
        events = stream.look()
        if as_json:
            output.print_json({"events": [event.to_json() for event in events]})
        else:
            _print(events, as_json=False)
        return
    tail.follow(lambda: _print(stream.look(), as_json=as_json), *stream.folders)


def _print(events: list[Event], *, as_json: bool) -> None:
    for event in events:
        if as_json:
            output.print_json_line(event.to_json())
        else:
            click.echo(render_event(event))


def render_event(event: Event) -> str:
    """Return the event as a line for people."""
    facts = " ".join(f"{key}={_fact(value)}" for key, value in event.facts.items() if value)
    when = terminal.style(output.moment(event.time), dim=True)
    kind = terminal.style(f"{event.kind:{_KIND_WIDTH}}", fg=_COLOURS.get(event.kind), bold=True)
    name = f"{output.plain(event.name):{_NAME_WIDTH}}"
    return f"{when} {kind} {name} {output.plain(facts)}".rstrip()


def _fact(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    short = " ".join(text.split())
    return json.dumps(short, ensure_ascii=False) if " " in short else short
