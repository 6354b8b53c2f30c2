"""`teamctl logs` and `transcript`: what a teammate did, line by line."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from teamctl import arguments, output
from teamctl.render import render_record
from teamctl.tail import lines
from teamd import commandline, terminal
from teamd.commandline import team_options
from teamd.errors import TeamError, WrongUsage
from teamd.messages import TEAMD, USER
from teamd.team.roster import Roster
from teamd.terminal import escape_json
from teamd.transcript.file import decode_lines, parse
from teamd.transcript.records import Checkpoint

if TYPE_CHECKING:
    from teamd.cli import Choice

_OWN = ("time", "level", "event", "who", "traceback")
_COLOURS = {"warning": "yellow", "error": "red"}


@commandline.command()
@commandline.argument("name", shell_complete=arguments.logs)
@commandline.option("--follow", "-f", is_flag=True, help="Keep showing new lines.")
@commandline.option(
    "--lines", "-n", "last", type=commandline.ValueType("IntRange", min=0),
    default=50, show_default=True,
    help="How many lines to show, counted from the end.",
)  # fmt: skip
@commandline.option(
    "--json", "as_json", is_flag=True, help="Print the lines as they are: one JSON object each."
)
@team_options
def command(choice: Choice, name: str, *, follow: bool, last: int, as_json: bool) -> None:
    """Show the log of teammate NAME, or with `teamd` that of the supervisor."""
    paths = choice.existing()
    name = TEAMD if name.lower() == TEAMD else Roster(paths).read().get(name).name
    for line in lines(paths.log(name), last=last, follow=follow):
        text = line.decode("utf-8", "replace")
        terminal.echo(escape_json(text) if as_json else _readable(text))


@commandline.command()
@commandline.argument("name", shell_complete=arguments.teammates)
@commandline.option("--follow", "-f", is_flag=True, help="Keep showing new entries.")
@commandline.option("--full", is_flag=True, help="Show long tool results in full.")
@output.json_option
@team_options
def transcript(choice: Choice, name: str, *, follow: bool, full: bool, as_json: bool) -> None:
    """Show the conversation of NAME, or with `user` the mail that you have read."""
    if follow and as_json:
        raise WrongUsage("--follow never ends and --json is one document: take one of them")
    paths = choice.existing()
    name = USER if name.lower() == USER else Roster(paths).read().get(name).name
    path = paths.transcript(name)
    if not path.exists() and not follow:
        raise TeamError(f"{name} has no conversation yet")
    found = lines(path, last=None, follow=follow)
    if as_json:  # records just as they are, also those of a later version
        shown = [one for one in map(parse, found) if one and one.get("record") != Checkpoint.kind]
        output.print_json({"name": name, "records": shown})
        return
    for record in decode_lines(found):
        for line in render_record(record, name, full=full):
            terminal.echo(line)


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
