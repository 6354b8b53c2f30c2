"""Logs and conversations: `teamctl logs` and `transcript` show them, `prune` removes old ones."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from teamctl import arguments, output
from teamctl.render import render_record
from teamctl.tail import lines
from teamd.cli import Choice, team_options
from teamd.control import KEPT_SECONDS
from teamd.errors import TeamError
from teamd.files import locks, temp_files
from teamd.files.os_errors import translate_os_errors
from teamd.messages import NAME, RESERVED, TEAMD, USER
from teamd.team.roster import Roster
from teamd.transcript.decoding import decode_lines, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from teamd.files.paths import TeamPaths

_OWN = ("time", "level", "event", "who", "traceback")
_COLOURS = {"warning": "yellow", "error": "red"}
_DAY_SECONDS: Final = 86_400.0
_ROTATED: Final = re.compile(r"\.log\.\d+")


@click.command()
@click.argument("name", shell_complete=arguments.logs)
@click.option("--follow", "-f", is_flag=True, help="Keep showing new lines.")
@click.option(
    "--lines", "-n", "last", type=click.IntRange(min=0), default=50, show_default=True,
    help="How many lines to show, counted from the end.",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print the lines as they are: one JSON object each."
)
@team_options
def command(choice: Choice, name: str, *, follow: bool, last: int, as_json: bool) -> None:
    """Show the log of teammate NAME, or with `teamd` that of the supervisor."""
    paths = choice.existing()
    name = TEAMD if name.lower() == TEAMD else Roster(paths).read().get(name).name
    for line in lines(paths.log(name), last=last, follow=follow):
        click.echo(line.decode("utf-8", "replace") if as_json else _readable(line))


@click.command()
@click.argument("name", shell_complete=arguments.teammates)
@click.option("--follow", "-f", is_flag=True, help="Keep showing new entries.")
@click.option("--full", is_flag=True, help="Show long tool results in full.")
@output.json_option
@team_options
def transcript(choice: Choice, name: str, *, follow: bool, full: bool, as_json: bool) -> None:
    """Show the conversation of NAME, or with `user` the mail that you have read."""
    if follow and as_json:
        raise click.UsageError("--follow never ends and --json is one document: take one of them")
    paths = choice.existing()
    name = USER if name.lower() == USER else Roster(paths).read().get(name).name
    path = paths.transcript(name)
    if not path.exists() and not follow:
        raise TeamError(f"{name} has no conversation yet")
    found = lines(path, last=None, follow=follow)
    if as_json:  # records just as they are, also those of a later version
        output.print_json({"name": name, "records": [*filter(None, map(parse, found))]})
        return
    for record in decode_lines(found):
        for line in render_record(record, name, full=full):
            click.echo(line)


@click.command()
@click.option("--logs", is_flag=True, help="Remove only logs.")
@click.option("--transcripts", is_flag=True, help="Remove only conversations.")
@click.option(
    "--older-than",
    "days",
    metavar="DAYS",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Keep files that changed within this many days.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@team_options
def prune(choice: Choice, *, logs: bool, transcripts: bool, days: float, dry_run: bool) -> None:
    """Remove rotated logs, and the logs, conversations and jobs of names not in the team.

    It also removes debris that is more than an hour old: answers that nobody fetched and files
    that a killed process left unfinished. It keeps all mail, your own conversation, and the files
    of every member, whatever its status.
    """
    paths = choice.existing()
    removed: list[tuple[Path, int]] = []
    try:
        # Under the roster's lock nobody joins the team whose old conversation is being removed.
        with locks.locked(paths.config_lock):
            found = _found(paths, logs=logs, transcripts=transcripts)
            for path in temp_files.older(found, seconds=days * _DAY_SECONDS):
                # a log that rotates just now
                with translate_os_errors(path), suppress(FileNotFoundError):
                    size = path.lstat().st_size
                    if not dry_run:
                        path.unlink()
                    removed.append((path, size))
    finally:  # whatever came in between, what is gone is told
        _tell("would remove" if dry_run else "removed", paths, removed)
    if not removed:
        click.echo("nothing to remove")


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


def _found(paths: TeamPaths, *, logs: bool, transcripts: bool) -> Iterator[Path]:
    everything = not (logs or transcripts)
    members = _members(paths)
    if logs or everything:
        yield from _logs(paths, members)
    if transcripts or everything:
        conversations = sorted(paths.transcripts.glob("*.jsonl"))
        yield from (path for path in conversations if _is_gone(path.stem, members))
    if everything:
        jobs = sorted(paths.all_jobs.glob("*/*"))
        yield from (path for path in jobs if _is_gone(path.parent.name, members))
        yield from temp_files.older(sorted(paths.replies.glob("*.json")), seconds=KEPT_SECONDS)
        yield from sorted(temp_files.aside(paths))


def _members(paths: TeamPaths) -> set[str]:
    """The names of the team in lower case; without a roster nobody knows what may go."""
    if not paths.config.exists():
        raise TeamError(
            f"there is no roster {paths.config}, so nothing tells what may go; "
            "`teamd start` makes one"
        )
    return {member.name.lower() for member in Roster(paths).read().members} | RESERVED


def _logs(paths: TeamPaths, members: set[str]) -> Iterator[Path]:
    """Rotated ones of anybody, and those of names that are gone."""
    for path in sorted(paths.logs.glob("*.log*")):
        name, dot, rest = path.name.partition(".")
        if NAME.fullmatch(name) and (
            _ROTATED.fullmatch(dot + rest) or (rest == "log" and name.lower() not in members)
        ):
            yield path


def _is_gone(name: str, members: set[str]) -> bool:
    return NAME.fullmatch(name) is not None and name.lower() not in members


def _tell(verb: str, paths: TeamPaths, removed: list[tuple[Path, int]]) -> None:
    for path, size in removed:
        shown = output.plain(str(path.relative_to(paths.root)))
        click.echo(f"{verb} {shown} ({output.count(size)}B)")
    if removed:
        total = sum(size for _, size in removed)
        number = "1 file" if len(removed) == 1 else f"{len(removed)} files"
        click.echo(f"{verb} {number}, {output.count(total)}B in all")
