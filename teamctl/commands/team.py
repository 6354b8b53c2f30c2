"""`teamctl team`: the members of the team and their states, once or as they change."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from teamctl import tail
from teamctl.render import output, roster_table, tables
from teamd.command_line.options import ANY_WORD, SuggestingCommand, team_options
from teamd.command_line.run import TeamOptions
from teamd.files.paths import TeamPaths
from teamd.overview.members import MemberView
from teamd.overview.overview import Overview, OverviewReader

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment, SegmentLines

_PAUSE_SECONDS: Final = 0.25  # at least between two looks
_LEAST_ROWS: Final = 3  # minimum rows of the table; notices leave room for them
# The members that need a person come first.
_ORDER: Final = (
    "waiting", "failed", "stopped", "paused", "retrying", "pausing", "working", "idle", "shutdown",
)  # fmt: skip
_MEANT: Final = {
    **dict.fromkeys(("list", "ls"), "`teamctl team` lists the teammates"),
    **dict.fromkeys(("add", "spawn"), "`teamctl spawn NAME ROLE PROMPT` starts a teammate"),
    "create": "`teamctl create NAME` makes another team",
    ANY_WORD: "`teamctl show {word}` shows one teammate",
}


@click.command(cls=SuggestingCommand, meant=_MEANT)
@click.option("--watch", "watched", is_flag=True, help="Keep showing it as it changes.")
@click.option("--hosts", "everywhere", is_flag=True, help="Also show other hosts' members.")
@output.json_option
@team_options
def command(choice: TeamOptions, *, watched: bool, everywhere: bool, as_json: bool) -> None:
    """Show who needs you, the members of the team and what they do.

    FOR is how long that has lasted, CONTEXT the used share of the model's window, UP how long the
    process has run, CPU its computing time, MEM its memory, MAIL the number of messages in the
    inbox. IN and OUT are tokens, COST is in USD; `teamctl usage` shows more. RESTARTS is how often
    a crashed process was started again. A narrow terminal shows fewer columns. With --watch, the
    members that need you come first, and Ctrl-C ends the command. With --hosts, the members of
    other hosts come last: as each host reported them, or as unreachable since its last report.
    """
    if watched and as_json:
        raise click.UsageError(
            "--watch never ends and --json is one document: use only one of them"
        )
    if watched and everywhere:
        raise click.UsageError("--watch shows this host; `teamctl team --hosts` shows all of them")
    paths = choice.existing()
    if watched:
        _watch(choice, paths)
        return
    seen = OverviewReader(paths).read(choice.waiting(paths))
    if everywhere:
        _show_everywhere(choice, seen, as_json=as_json)
    elif as_json:
        _print_json(seen, {})
    else:
        roster_table.show(seen)


def _show_everywhere(choice: TeamOptions, seen: Overview, *, as_json: bool) -> None:
    """Show the members of other hosts as well."""
    from teamctl.mail.router import other_hosts  # noqa: PLC0415 -- the same
    from teamctl.render import host_table  # noqa: PLC0415 -- only if there are other hosts

    hosts = other_hosts(choice)
    far = host_table.read_hosts(hosts, seen.team.name)
    if as_json:
        _print_json(seen, {"hosts": [host.with_members() for host in far]})
        return
    rows = [row for host in far for row in host_table.member_cells(host, roster_table.HEADINGS)]
    roster_table.show(seen, rows, list(host_table.note_lines(hosts, far)))


def _print_json(seen: Overview, more: dict[str, Any]) -> None:
    if seen.trouble:
        output.warn(seen.trouble)
    output.print_json({**seen.to_json(), **more})


def _watch(choice: TeamOptions, paths: TeamPaths) -> None:
    """Show the team until the person presses Ctrl-C."""
    if not sys.stdout.isatty():
        raise click.UsageError("--watch needs a terminal; `teamctl team --json` is for programs")
    reader = OverviewReader(paths)
    show = _lines if os.environ.get("TERM", "dumb") == "dumb" else _screen
    with show() as update:

        def look() -> None:
            update(reader.read(choice.waiting(paths)))
            time.sleep(_PAUSE_SECONDS)  # combine changes that follow at once

        tail.follow(look, paths.root, paths.inboxes, paths.requests, paths.activities)


@contextmanager
def _screen() -> Iterator[Callable[[Overview], None]]:
    """Show each overview on the whole screen, replacing the previous one."""
    from rich.live import Live  # noqa: PLC0415 -- only on a terminal

    with Live(console=tables.console(), auto_refresh=False, screen=True) as live:
        yield lambda seen: live.update(Screen(seen), refresh=True)


@dataclass(frozen=True, slots=True)
class Screen:
    """As much of the team as fits the terminal: problems first, and a count of the rest."""

    seen: Overview

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[SegmentLines]:
        from rich.console import Group  # noqa: PLC0415 -- only on a terminal
        from rich.segment import SegmentLines  # noqa: PLC0415 -- the same

        def render(*lines: tuple[str, str]) -> list[list[Segment]]:
            group = Group(*(tables.cell(*line) for line in lines))
            return console.render_lines(group, options.update(height=None), pad=False)

        views = problems_first(self.seen.members)
        table = roster_table.roster_table([list(roster_table.member_cells(view)) for view in views])
        rows = console.render_lines(table, options.update(height=None), pad=False)
        height = console.height - 1
        above = render(*roster_table.notice_lines(self.seen))
        below = render((total(self.seen), "bold"))[:1]
        most = max(1, height - min(len(rows), _LEAST_ROWS + 1) - len(below) - 1)
        if len(above) > most:
            more = f"+{len(above) - most + 1} more lines: `teamctl team`"
            above = [*above[: most - 1], *render((more, ""))[:1]]
        room = max(2, height - len(above) - len(below))
        if len(rows) > room:
            rows = [*rows[: room - 1], *render((f"+{len(rows) - room + 1} more", "bright_black"))]
        notes = render(*roster_table.note_lines(self.seen))
        shown = [*above, *rows, *notes[: max(0, room - len(rows))], *below]
        yield SegmentLines(shown[:height], new_lines=True)


def problems_first(views: tuple[MemberView, ...]) -> list[MemberView]:
    """Return the members, starting with those that need a person."""
    return sorted(views, key=lambda view: _ORDER.index("retrying" if view.retry else view.state))


def total(seen: Overview) -> str:
    """Return the number of members in each state, and their total usage."""
    states = [view.state for view in problems_first(seen.members)]
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    mail = sum(view.queued or 0 for view in seen.members)
    usd = sum(view.account.known_usd or 0 for view in seen.members if view.account)
    members = "1 member" if len(states) == 1 else f"{len(states)} members"
    return f"{members}: {', '.join(counts)}; {mail} in inboxes, ${usd:.2f}"


@contextmanager
def _lines() -> Iterator[Callable[[Overview], None]]:
    """Print the first overview, and then a line for each change, for a dumb terminal."""
    before: Overview | None = None

    def update(seen: Overview) -> None:
        nonlocal before
        if before is None:
            roster_table.show(seen)
        else:
            for line in changes(before, seen):
                output.echo(line)
        before = seen

    yield update


def changes(before: Overview, now: Overview) -> Iterator[str]:
    """Yield a line for each member whose activity has changed, and for each new notice."""
    clock = output.clock(time.time())
    for view in now.members:
        was = before.find(view.name)
        if was is None or _activity(was) != _activity(view):
            yield " ".join(filter(None, (clock, view.name, view.state, view.describes)))
    for view in before.members:
        if now.find(view.name) is None:
            yield f"{clock} {view.name} left the team"
    known = [notice.lines for notice in before.notices]
    for notice in now.notices:
        if notice.lines not in known:
            yield from notice.lines


def _activity(view: MemberView) -> tuple[object, ...]:
    """Return a member's activity, without the countdown of a retry."""
    if view.retry is not None:
        return view.state, view.retry.attempt, view.retry.cause
    return view.state, view.describes
