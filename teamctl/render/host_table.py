"""The table of other hosts and their members, from the reports of those hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from teamctl.render import output
from teamctl.render.tables import Cell, Shape
from teamd.errors import StoreError
from teamd.files import pidfile
from teamd.hosts.far import NO_POSTMAN, FarHosts, describe_absence
from teamd.hosts.outbox import count_waiting
from teamd.hosts.places import explain_renewal
from teamd.hosts.rosters import FarMember
from teamd.hosts.view import HostState, HostView, postman_runs

HEADINGS: Final = ("HOST", "STATE", "SINCE", "WAITING", "ROUND TRIP", "WHY")
NUMBERS: Final = ("WAITING", "ROUND TRIP")
SHAPE: Final = Shape(
    elastic={"WHY": 14, "HOST": 8},
    spare=("ROUND TRIP", "SINCE", "WHY"),
    dispensable=("ROUND TRIP", "WHY"),
)
_COLOURS: Final = {"reachable": "green", "unreachable": "yellow", "never": "bright_black"}
_LESS: Final = "bright_black"


@dataclass(frozen=True, slots=True)
class HostRow:
    """One other host.

    Attributes:
        waiting: the number of lines that wait for it; `None` if its outbox is damaged.
        team: the name of the team there, by its last roster.
        members: the members in its last report.
        left_out: the number of members that the report left out.
    """

    view: HostView
    waiting: int | None
    team: str
    members: tuple[FarMember, ...] = ()
    left_out: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the host as `hosts --json` shows it."""
        view = self.view
        return {
            "name": view.name,
            "state": str(view.state),
            "since": view.since,
            "waiting": self.waiting,
            "round_trip_ms": view.round_trip_ms,
            "why": view.why,
            "reports": [{"time": one.time, "text": one.text} for one in view.reports],
        }

    def with_members(self) -> dict[str, Any]:
        """Return the host as `team --hosts --json` shows it."""
        fields = ("name", "role", "status", "since")
        listed = [{field: getattr(one, field) for field in fields} for one in self.members]
        return {**self.to_json(), "team_name": self.team, "members": listed}


def read_hosts(hosts: FarHosts, team: str) -> list[HostRow]:
    """Return a row for each other host; `team` is the name of the team on this host."""
    return [_read(hosts, view, team) for view in hosts.views()]


def host_cells(row: HostRow) -> list[Cell]:
    """Return the cells of a host's row."""
    view, state = row.view, str(row.view.state)
    trip = "-" if view.round_trip_ms is None else f"{view.round_trip_ms:.1f}ms"
    count = "?" if row.waiting is None else str(row.waiting)
    since = output.ago(view.since)
    return [
        (view.name, ""), (state, _COLOURS[state]), (since, ""), (count, ""), (trip, ""),
        (view.why or "-", ""),
    ]  # fmt: skip


def member_cells(row: HostRow, columns: tuple[str, ...]) -> Iterator[list[Cell]]:
    """Yield a row for each member of a host, with the columns of the roster."""
    there = row.view.state is HostState.REACHABLE
    for member in row.members:
        state = str(member.status) if there else "unreachable"
        since = member.since if there else row.view.since
        colour = output.STATUS_COLOURS[state] if there else _LESS
        found = {
            "NAME": (f"{member.name}@{row.team}@{row.view.name}", "" if there else _LESS),
            "ROLE": (member.role, ""),
            "STATUS": (state, colour),
            "FOR": (output.ago(since), ""),
        }
        yield [found.get(column, ("-", "")) for column in columns]


def note_lines(hosts: FarHosts, rows: list[HostRow]) -> Iterator[Cell]:
    """Yield the lines about other hosts that belong below their table."""
    if not postman_runs(hosts.paths):
        fails = pidfile.supervisor(hosts.paths) is not None
        next_step = "`teamctl doctor` says why" if fails else "`teamd start` starts it"
        why = f"{NO_POSTMAN}, so mail to other hosts waits; {next_step}"
        yield hosts.paths.add_team_option(why), "yellow"
    if (renewal := explain_renewal(hosts.paths)) is not None:
        yield renewal, "red"
    for one in hosts.own_reports():
        yield f"{hosts.name} (this host): {output.ago(one.time)} ago: {one.text}", "red"
    for row in rows:
        view = row.view
        absent = describe_absence(view)
        if absent is not None and view.why != NO_POSTMAN:
            yield f"{view.name}: {absent}{_describe_waiting(row)}", "yellow"
        if row.left_out:
            yield f"{view.name}: {row.left_out} more are not listed", ""
        for one in view.reports:
            yield f"{view.name}: {output.ago(one.time)} ago: {one.text}", "red"


def _describe_waiting(row: HostRow) -> str:
    if not row.waiting:
        return ""
    return "; 1 line waits for it" if row.waiting == 1 else f"; {row.waiting} lines wait for it"


def _read(hosts: FarHosts, view: HostView, team: str) -> HostRow:
    try:
        count: int | None = count_waiting(hosts.paths, view.name)
    except StoreError:  # its outbox is damaged, which `teamctl doctor` reports
        count = None
    roster = hosts.roster(view.name)
    if roster is None:
        return HostRow(view, count, team)
    return HostRow(view, count, roster.team, roster.members, roster.left_out)
