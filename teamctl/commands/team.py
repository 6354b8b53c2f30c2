"""`teamctl team`: who there is, and how they are."""

from __future__ import annotations

import select
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from teamctl import output
from teamd.commandline import Choice, pass_choice, team_options
from teamd.errors import ExitCode
from teamd.store import running
from teamd.store.mailbox import Mailbox
from teamd.store.roster import Roster
from teamd.store.watch import watch

if TYPE_CHECKING:
    from rich.console import Group

    from teamd.store.paths import TeamPaths
    from teamd.store.roster import Member, Team

HEADINGS: Final = (
    "NAME", "ROLE", "STATUS", "PID", "UP", "CPU", "MEM", "MAIL", "TURNS", "IN", "OUT",
)  # fmt: skip
NUMBERS: Final = HEADINGS[3:]
REFRESH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A member and what can be measured of it right now."""

    member: Member
    alive: bool
    cpu_seconds: float | None
    memory_bytes: int | None
    queued: int
    rejected: int

    def to_json(self) -> dict[str, Any]:
        """The member as `--json` shows it."""
        since = self.member.since
        return {
            **self.member.encode(),
            "pid": self.member.pid if self.alive else None,
            "uptime_seconds": time.time() - since if since is not None and self.alive else None,
            "cpu_seconds": self.cpu_seconds,
            "memory_bytes": self.memory_bytes,
            "queued": self.queued,
            "rejected": self.rejected,
        }


@click.command()
@click.option("--watch", "watched", is_flag=True, help="Go on showing it as it changes.")
@output.json_option
@team_options
@pass_choice
def command(choice: Choice, *, watched: bool, as_json: bool) -> int:
    """Show the roster.

    UP is how long the process has run, CPU the time it has computed, MAIL what waits in the
    inbox, IN and OUT are tokens.
    """
    if watched and as_json:
        raise click.UsageError("--watch never ends and --json is one document: take one of them")
    paths = choice.existing()
    if as_json:
        team = Roster(paths).read()
        rows = [row.to_json() for row in _rows(paths, team)]
        output.print_json({"team_name": team.name, "members": rows})
    elif watched:
        _watch(paths)
    else:
        output.console().print(_drawn(paths))
    return ExitCode.DONE


def _rows(paths: TeamPaths, team: Team) -> list[Row]:
    return [_measured(paths, member) for member in team.members]


def _measured(paths: TeamPaths, member: Member) -> Row:
    box = Mailbox(paths, member.name)
    alive = member.process is not None and member.process.alive
    cpu, memory = _usage(member) if alive else (None, None)
    return Row(
        member=member,
        alive=alive,
        cpu_seconds=cpu,
        memory_bytes=memory,
        queued=box.queued(),
        rejected=box.rejected(),
    )


def _usage(member: Member) -> tuple[float | None, int | None]:
    import psutil  # noqa: PLC0415 -- 11 ms, only where a process is measured

    try:
        process = psutil.Process(member.pid)
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss
    except psutil.Error:
        return None, None


def _drawn(paths: TeamPaths) -> Group | str:
    from rich.console import Group  # noqa: PLC0415 -- only where something is drawn
    from rich.text import Text  # noqa: PLC0415 -- the same

    team = Roster(paths).read()
    notes = []
    if running.supervisor(paths) is None:
        notes.append(
            Text(f"no teamd runs for {paths.root}; `teamd start` starts it", style="yellow")
        )
    if not team.members:
        empty = "nobody is in the team yet; `teamctl spawn NAME ROLE PROMPT` adds someone"
        return Group(Text(empty), *notes)
    table = output.table(HEADINGS, numbers=NUMBERS)
    rows = _rows(paths, team)
    for row in rows:
        table.add_row(*_cells(row))
    for row in rows:
        if row.member.reason:
            notes.append(Text(f"{row.member.name}: {output.plain(row.member.reason)}"))
        if row.rejected:
            rejected = paths.rejected(row.member.name)
            notes.append(Text(f"{row.member.name}: {row.rejected} lines were no mail: {rejected}"))
    return Group(table, *notes)


def _cells(row: Row) -> list[Any]:
    from rich.text import Text  # noqa: PLC0415 -- only where something is drawn

    member = row.member
    status = Text(str(member.status), style=output.STATUS_COLOURS[str(member.status)])
    return [
        Text(member.name, style=member.color),
        Text(output.plain(member.role)),
        status,
        str(member.pid) if row.alive else "-",
        output.ago(member.since) if row.alive else "-",
        "-" if row.cpu_seconds is None else f"{row.cpu_seconds:.1f}s",
        "-" if row.memory_bytes is None else output.count(row.memory_bytes),
        str(row.queued),
        output.count(member.turns),
        output.count(member.input_tokens),
        output.count(member.output_tokens),
    ]


def _watch(paths: TeamPaths) -> None:
    from rich.live import Live  # noqa: PLC0415 -- only where something is drawn

    console = output.console()
    if not sys.stdout.isatty():
        raise click.UsageError("--watch needs a terminal; `teamctl team --json` is for programs")
    watching = watch(paths.root)
    try:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                live.update(_drawn(paths), refresh=True)
                select.select([watching.fileno()], [], [], REFRESH_SECONDS)
                watching.changed()
    finally:
        watching.close()
