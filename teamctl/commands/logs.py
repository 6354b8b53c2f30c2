"""`teamctl logs`: the log of a teammate, of teamd or of the postman."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from teamctl import arguments, tail
from teamctl.render import output
from teamctl.tail import GrowingFile
from teamd.command_line import terminal
from teamd.command_line.options import IntRange, team_options
from teamd.command_line.run import TeamOptions
from teamd.command_line.terminal import escape_json
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostPlaces
from teamd.messages import TEAMD
from teamd.team.roster import Roster

_OWN = ("time", "level", "event", "who", "traceback")
_POSTMAN: Final = "postman"
_COLOURS = {"warning": "yellow", "error": "red"}


@click.command()
@click.argument("name", shell_complete=arguments.logs)
@click.option("--follow", "-f", is_flag=True, help="Keep showing new lines.")
@click.option(
    "--lines", "-n", "last", type=IntRange(min=0),
    default=50, show_default=True,
    help="How many lines to show, counted from the end.",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print the lines as they are: one JSON object each."
)
@team_options
def command(choice: TeamOptions, name: str, *, follow: bool, last: int, as_json: bool) -> None:
    """Show the log of teammate NAME or, with `teamd`, the log of the supervisor.

    With `postman`, unless a teammate has that name, it shows the log of the postman, which carries
    mail to other hosts.
    """
    path = _find(choice.existing(), name)
    growing = GrowingFile(path)

    def show(lines: Iterable[bytes]) -> None:
        for line in lines:
            text = line.decode("utf-8", "replace")
            click.echo(escape_json(text) if as_json else _readable(text))

    show(deque(growing.lines(), maxlen=last))
    if follow:
        tail.follow(lambda: show(growing.lines()), path.parent)


def _find(paths: TeamPaths, name: str) -> Path:
    """Return the log of a name.

    Raises:
        UnknownTeammate: no member has that name.
    """
    team, lower = Roster(paths).read(), name.lower()
    if lower == TEAMD:
        return paths.log(TEAMD)
    if lower == _POSTMAN and team.find(name) is None:
        return HostPlaces(paths).log
    return paths.log(team.get(name).name)


def _readable(line: str) -> str:
    try:
        entry = json.loads(line)
        when = datetime.fromisoformat(entry["time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        level, event = str(entry["level"]), str(entry["event"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return output.plain(line)
    facts = " ".join(f"{key}={value}" for key, value in entry.items() if key not in _OWN)
    said = terminal.style(output.plain(event), fg=_COLOURS.get(level), bold=True)
    shown = f"{terminal.style(when, dim=True)} {said}  {output.plain(facts)}"
    trace = entry.get("traceback")
    return shown.rstrip() + (f"\n{output.plain(str(trace))}" if trace else "")
