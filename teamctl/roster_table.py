"""The roster as a table, with what can be measured of each member's process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from teamctl import output
from teamd.errors import StoreError, TeamError
from teamd.files import directories, files, pidfile
from teamd.mail import lines
from teamd.sandbox import SANDBOXED
from teamd.team.member import COLOURS, Member
from teamd.team.roster import Roster, Team

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, ConsoleOptions, Group
    from rich.table import Table

    from teamctl.plain_table import Cell
    from teamd.budget.accounts import Account
    from teamd.files.paths import TeamPaths

HEADINGS: Final = (
    "NAME", "ROLE", "STATUS", "PID", "UP", "CPU", "MEM", "MAIL", "TURNS", "IN", "OUT", "COST",
)  # fmt: skip
NUMBERS: Final = HEADINGS[3:]
ELASTIC: Final = {"NAME": 12, "ROLE": 8}  # cut with an ellipsis, down to so many characters
DISPENSABLE: Final = ("OUT", "IN", "CPU", "MEM", "PID", "UP", "TURNS", "COST", "ROLE", "MAIL")
_GAP: Final = 2


class Row:
    """A member and what can be measured of it right now.

    Args:
        account: what it has used; `None` where that is not known.
        waiting: the request of its own that waits for an answer, if one does.

    Attributes:
        copy: its working copy as `--json` shows it; `None` where it has none.
        trouble: why its mail cannot be counted.
    """

    def __init__(
        self, paths: TeamPaths, member: Member, account: Account | None, waiting: str | None
    ) -> None:
        self.member = member
        self.account = account
        self.waiting = waiting
        process = member.process
        self.alive = process is not None and process.alive
        self.cpu_seconds, self.memory_bytes = process.usage() if process else (None, None)
        self.copy = _look_at_copy(paths, member) if member.worktree else None
        self.queued, self.rejected, self.trouble = _count_mail(paths, member)

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
            "trouble": self.trouble,
            "waiting_request": self.waiting,
            "worktree": self.copy,
            "usd": None if self.account is None else output.known_usd(self.account),
        }


def measure(paths: TeamPaths, team: Team) -> tuple[list[Row], str]:
    """Measure every member; also return why the costs are not known, or nothing."""
    if not team.members:
        return [], ""
    from teamd.budget.accounts import NOTHING  # noqa: PLC0415 -- many classes, for members only
    from teamd.budget.ledger import Ledger  # noqa: PLC0415 -- the same

    trouble, used = "", None
    try:
        used = Ledger(paths.ledger).read().used
    except StoreError as error:
        trouble = f"no costs are known: {error}"
    waiting = _find_requests(paths)
    rows = []
    for member in team.members:
        account = None if used is None else used.get(member.name, NOTHING)
        rows.append(Row(paths, member, account, waiting(member.name)))
    return rows, trouble


def _find_requests(paths: TeamPaths) -> Callable[[str], str | None]:
    """Return what tells the id of the request of a member's own that waits for an answer."""
    if not directories.list_files(paths.requests, "*.json"):
        return lambda _: None
    from teamctl.post import open_approvals  # noqa: PLC0415 -- only where there are some
    from teamd.approvals.approval import Kind, find_waiting  # noqa: PLC0415 -- the same

    asked = open_approvals(paths)

    def find(name: str) -> str | None:
        found = find_waiting(asked, name, Kind.PERMISSION, Kind.PLAN)
        return None if found is None else found.id

    return find


def show(paths: TeamPaths, note: str = "") -> None:
    """Print the roster as it is now, and below it what a person should know besides."""
    rows, notes = _look(paths, note)
    if not output.print_plainly(HEADINGS if rows else (), rows, NUMBERS, notes):
        output.console().print(_draw(rows, notes))


def drawn(paths: TeamPaths, note: str = "") -> Group:
    """The roster as it is now, as rich draws it."""
    return _draw(*_look(paths, note))


def _draw(rows: list[list[Cell]], notes: list[Cell]) -> Group:
    from rich.console import Group  # noqa: PLC0415 -- only where something is drawn

    shown = [output.cell(*one) for one in notes]
    return Group(_RosterTable(rows), *shown) if rows else Group(*shown)


def _look(paths: TeamPaths, note: str) -> tuple[list[list[Cell]], list[Cell]]:
    """Return the rows of the table, and the notes below it or in its place."""
    team = Roster(paths).read()
    notes = [(note, "yellow")] if note else []
    if pidfile.supervisor(paths) is None:
        idle = paths.addressed(f"no teamd runs for {paths.root}; `teamd start` starts it")
        notes.append((idle, "yellow"))
    if not team.members:
        empty = "nobody is in the team yet; `teamctl spawn NAME ROLE PROMPT` adds someone"
        return [], [(paths.addressed(empty), ""), *notes]
    measured, trouble = measure(paths, team)
    if trouble:
        notes.append((trouble, "red"))
    for row in measured:
        notes += _notes(paths, row, team)
    if team.sandbox:
        calm = team.sandbox.startswith(SANDBOXED)
        notes.append((f"sandbox: {team.sandbox}", "bright_black" if calm else "yellow"))
    return list(map(_cells, measured)), notes


def _notes(paths: TeamPaths, row: Row, team: Team) -> Iterator[Cell]:
    """Yield what a person should know of one member besides its row."""
    member = row.member
    if member.reason:
        yield f"{member.name}: {' '.join(member.reason.split())}", ""
    if row.copy:
        yield f"{member.name}: {_describe_copy(row.copy)}", ""
    if row.trouble:
        yield f"{member.name}: {row.trouble}", "red"
    if row.rejected:
        rejected = f"{row.rejected} lines were no mail: {paths.rejected(member.name)}"
        yield f"{member.name}: {rejected}", ""
    if member.sandbox not in (None, team.sandbox):
        yield f"{member.name}: sandbox {member.sandbox}", "yellow"


def _look_at_copy(paths: TeamPaths, member: Member) -> dict[str, Any]:
    from teamd.copies import record, work  # noqa: PLC0415 -- only where there is one

    try:
        return work.to_json(paths, record.get(paths, member.name))
    except TeamError as error:
        gone = {"path": str(paths.copy(member.name)), "branch": None}
        return {**gone, "ahead": None, "uncommitted": None, "trouble": str(error)}


def _describe_copy(copy: dict[str, Any]) -> str:
    if copy["ahead"] is None:
        return str(copy["trouble"])
    ahead, files = copy["ahead"], copy["uncommitted"]
    commits = f"{ahead} commit{'' if ahead == 1 else 's'} ahead"
    where = f"branch {copy['branch']}" if copy["branch"] else "on no branch"
    return f"{where}, {commits}, {files} uncommitted file{'' if files == 1 else 's'}"


class _RosterTable:
    """The table at whatever width there is: what can be spared most is left out first."""

    def __init__(self, rows: list[list[Cell]]) -> None:
        shown = ([output.cell(*one) for one in row] for row in rows)
        self._rows = [dict(zip(HEADINGS, row, strict=True)) for row in shown]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Draw it: rich's protocol for things that depend on the width."""
        from rich.cells import cell_len  # noqa: PLC0415 -- only where something is drawn

        widths = {h: max(len(h), *(cell_len(str(row[h])) for row in self._rows)) for h in HEADINGS}
        for heading in DISPENSABLE:
            least = sum(min(wide, ELASTIC.get(h, wide)) + _GAP for h, wide in widths.items())
            if least <= options.max_width:
                break
            del widths[heading]
        excess = sum(wide + _GAP for wide in widths.values()) - options.max_width
        for heading in ("ROLE", "NAME"):
            if excess > 0 and (wide := widths.get(heading, 0)) > ELASTIC[heading]:
                widths[heading] = max(ELASTIC[heading], wide - excess)
                excess -= wide - widths[heading]
        table = output.table(list(widths), numbers=NUMBERS)
        for column, wide in zip(table.columns, widths.values(), strict=True):
            column.width = wide
        for row in self._rows:
            table.add_row(*(row[heading] for heading in widths))
        yield table


def _count_mail(paths: TeamPaths, member: Member) -> tuple[int | None, int, str | None]:
    """Return how much is queued and how much was rejected, or why that cannot be told."""
    name = member.name
    try:
        rejected = lines.count(paths.rejected(name))
        if not files.size(paths.taken(name)):
            return lines.count(paths.inbox(name)), rejected, None
        from teamd.mail.mailbox import Mailbox  # noqa: PLC0415 -- only where mail is in hand

        return Mailbox(paths, name).queued(), rejected, None
    except StoreError as error:  # one file of one member hides nobody
        return None, 0, str(error)


def _cells(row: Row) -> list[Cell]:
    member = row.member
    colour = member.color if member.color in COLOURS else ""  # a style may hold a link
    status = str(member.status)
    figures = (
        str(member.pid) if row.alive else "-",
        output.ago(member.since) if row.alive else "-",
        "-" if row.cpu_seconds is None else f"{row.cpu_seconds:.1f}s",
        "-" if row.memory_bytes is None else output.count(row.memory_bytes),
        "?" if row.queued is None else str(row.queued),
        output.count(member.turns),
        output.count(member.input_tokens),
        output.count(member.output_tokens),
        "?" if row.account is None else output.cost(row.account),
    )
    named = [(member.name, colour), (member.role, ""), (status, output.STATUS_COLOURS[status])]
    return [*named, *((figure, "") for figure in figures)]
