"""`teamctl transcript`: the conversations of teammates, and the mail that the person has read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from teamctl import arguments, tail
from teamctl.arguments import SINCE_HELP, parse_when
from teamctl.render import output
from teamctl.render.layout import Layout
from teamctl.render.transcript_view import TranscriptView
from teamctl.transcripts import NamedRecord, Retries, Transcripts
from teamd.command_line import terminal
from teamd.command_line.options import IntRange, team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, USER
from teamd.team.roster import Roster
from teamd.transcript.file import decode_object

_SHOWN: Final = 50  # entries, on a terminal


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=arguments.teammates)
@click.option(
    "--all", "everything", is_flag=True, help="All teammates together; of NAME, all its entries."
)
@click.option("--follow", "-f", is_flag=True, help="Keep showing new entries.")
@click.option(
    "--last", "-n", type=IntRange(min=0),
    help=f"How many entries to show, from the end  [default: on a terminal {_SHOWN}, else all].",
)  # fmt: skip
@click.option("--since", metavar="WHEN", help=SINCE_HELP)
@click.option("--full", is_flag=True, help="Show long tool results in full.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document; with -f, one record a line."
)
@team_options
def command(
    choice: TeamOptions,
    names: tuple[str, ...],
    *,
    everything: bool,
    follow: bool,
    last: int | None,
    since: str | None,
    full: bool,
    as_json: bool,
) -> None:
    """Show the conversation of NAME, or with `user` the mail that you have read.

    Several conversations, or --all of them, are shown together by time. A reply and its tool
    calls are one entry.
    """
    if not (names or everything):
        raise click.UsageError("name one or more teammates, or give --all")
    paths = choice.existing()
    bounded = last is not None or since is not None or (names and everything)
    if not bounded and not as_json and sys.stdout.isatty():
        last = _SHOWN
    whose = _choose(paths, names)
    found = Transcripts(paths, whose, last, None if since is None else parse_when(since))
    if not found.open() and not follow:
        none = f"{whose()[0]} has no" if len(names) == 1 else "none of them has a"
        raise TeamError(f"{none} conversation yet")
    if LEAD in whose() or not names:
        paths.note_seen()
    if as_json:
        _print_json(found, paths, alone=len(names) == 1, follow=follow)
    else:
        _print(found, paths, whose, full=full, follow=follow)


def _choose(paths: TeamPaths, names: tuple[str, ...]) -> Callable[[], list[str]]:
    """Return a function for the wanted names: the given members, or all members at that time."""
    roster = Roster(paths)
    team = roster.read()
    chosen = [USER if name.lower() == USER else team.get(name).name for name in names]
    if names:
        return lambda: list(dict.fromkeys(chosen))
    return lambda: [member.name for member in roster.read().members]


def _print(
    found: Transcripts,
    paths: TeamPaths,
    whose: Callable[[], list[str]],
    *,
    full: bool,
    follow: bool,
) -> None:
    view = TranscriptView(Layout.of_output(), full=full, live=follow)
    if found.cut and sys.stdout.isatty():
        click.echo(terminal.style("… -n shows more, and --all or a pipe gets all", dim=True))
    if not follow:
        _show(view, found.first())
        _echo(view.finish())
        return
    retries = {name: Retries(paths.log(name)) for name in whose()}

    def look() -> None:
        _show(view, found.more())
        for name, tried in retries.items():
            for moment, what in tried.more():
                _echo(view.note(moment, f"{name} is {what}"))

    _show(view, found.first())
    tail.follow(look, paths.transcripts, paths.logs)


def _show(view: TranscriptView, found: Iterable[NamedRecord]) -> None:
    for name, record in found:
        _echo(view.show(name, decode_object(record)))


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _print_json(found: Transcripts, paths: TeamPaths, *, alone: bool, follow: bool) -> None:
    """Print the records unchanged, including those of a later version."""

    def look() -> None:
        for name, record in found.more():
            output.print_json_line({"name": name, **record})

    if follow:
        for name, record in found.first():
            output.print_json_line({"name": name, **record})
        tail.follow(look, paths.transcripts)
        return
    listed: dict[str, list[Any]] = {name: [] for name in found.names()}
    for name, record in found.first():
        listed[name].append(record)
    documents = [{"name": name, "records": shown} for name, shown in listed.items()]
    output.print_json(documents[0] if alone else {"transcripts": documents})
