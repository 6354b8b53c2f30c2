"""`teamctl logs`: what a process says of itself."""

from __future__ import annotations

import json
from datetime import datetime

import click

from teamctl import completion, output
from teamctl.tail import lines
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode
from teamd.messages import TEAMD
from teamd.team.roster import Roster

_OWN = ("time", "level", "event", "who", "traceback")
_COLOURS = {"warning": "yellow", "error": "red"}


@click.command()
@click.argument("name", shell_complete=completion.logs)
@click.option("--follow", "-f", is_flag=True, help="Keep showing new lines.")
@click.option(
    "--lines", "-n", "last", type=click.IntRange(min=0), default=50, show_default=True,
    help="How many lines to show, counted from the end.",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print the lines as they are: one JSON object each."
)
@team_options
@pass_choice
def command(choice: Choice, name: str, *, follow: bool, last: int, as_json: bool) -> int:
    """Show the log of teammate NAME, or with `teamd` that of the supervisor."""
    paths = choice.existing()
    name = TEAMD if name.lower() == TEAMD else Roster(paths).read().get(name).name
    for line in lines(paths.log(name), last=last, follow=follow):
        click.echo(line.decode("utf-8", "replace") if as_json else _readable(line))
    return ExitCode.DONE


def _readable(line: bytes) -> str:
    try:
        entry = json.loads(line)
        when = datetime.fromisoformat(entry["time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        level, event = entry["level"], entry["event"]
    except (ValueError, KeyError, TypeError):
        return output.plain(line.decode("utf-8", "replace"))
    facts = " ".join(f"{key}={value}" for key, value in entry.items() if key not in _OWN)
    said = click.style(output.plain(event), fg=_COLOURS.get(level), bold=True)
    shown = f"{click.style(when, dim=True)} {said}  {output.plain(facts)}"
    trace = entry.get("traceback")
    return shown.rstrip() + (f"\n{output.plain(trace)}" if trace else "")
