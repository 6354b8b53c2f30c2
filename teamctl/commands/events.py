"""`teamctl events`: everything that happens in the team, for scripts."""

from __future__ import annotations

import time
from typing import Final

import click

from teamctl.arguments import SINCE_HELP, parse_when
from teamctl.events.event import Event
from teamctl.events.stream import Stream
from teamctl.render import output
from teamctl.tail import Watched
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions

_HOUR: Final = 3600


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep showing what happens.")
@click.option("--since", metavar="WHEN", help=SINCE_HELP)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document; with -f, one event a line."
)
@team_options
def command(choice: TeamOptions, *, follow: bool, since: str | None, as_json: bool) -> None:
    """Show what happened in the team: mail, turns, tool calls, tasks, approvals, crashes.

    Without --since, this is the last hour, and with -f only what happens from now on. `teamctl
    help files` lists the kinds of events. Looking changes nothing.
    """
    paths = choice.existing()
    now = time.time()
    began = parse_when(since) if since is not None else now if follow else now - _HOUR
    stream = Stream(paths, began)
    if not follow:
        events = stream.look()
        if as_json:
            output.print_json({"events": [event.to_json() for event in events]})
        else:
            _print(events, as_json=False)
        return
    with Watched(*stream.folders) as watched:
        while True:
            _print(stream.look(), as_json=as_json)
            watched.wait()


def _print(events: list[Event], *, as_json: bool) -> None:
    for event in events:
        if as_json:
            output.print_json_line(event.to_json())
        else:
            click.echo(event.line())
