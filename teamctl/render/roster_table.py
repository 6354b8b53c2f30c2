"""The roster as a table, with the notices about the team above and the notes below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from teamctl.render import output, tables
from teamctl.render.tables import Cell, Shape
from teamd.overview.members import MemberView, find_failing
from teamd.overview.notices import NoticeKind
from teamd.overview.overview import Overview
from teamd.sandbox import SANDBOXED
from teamd.team.member import COLOURS

if TYPE_CHECKING:
    from rich.console import Group

HEADINGS: Final = (
    "NAME", "ROLE", "STATUS", "FOR", "DOING", "PID", "UP", "CPU", "MEM", "CONTEXT", "RESTARTS",
    "MAIL", "TURNS", "IN", "OUT", "COST",
)  # fmt: skip
NUMBERS: Final = ("FOR", *HEADINGS[5:])
SHAPE: Final = Shape(
    elastic={"DOING": 14, "ROLE": 8, "NAME": 12},
    spare=(
        "OUT", "IN", "CPU", "UP", "PID", "MEM", "TURNS", "RESTARTS", "CONTEXT", "ROLE", "MAIL",
        "COST",
    ),
    dispensable=("FOR", "DOING"),
)  # fmt: skip
# The end of the name of a member on another host is its host.
_FAR_SHAPE: Final = replace(SHAPE, elastic={**SHAPE.elastic, "NAME": 22})
_NOTICE_COLOURS: Final = {"waiting": "bright_yellow", "failed": "red", "mail": "cyan"}


def show(seen: Overview, more: Sequence[list[Cell]] = (), also: Sequence[Cell] = ()) -> None:
    """Print the roster, see `render_roster`."""
    tables.console().print(render_roster(seen, more, also))


def render_roster(
    seen: Overview, more: Sequence[list[Cell]] = (), also: Sequence[Cell] = ()
) -> Group:
    """Return the roster with its notices and notes for rich.

    Args:
        seen: the team.
        more: rows of members of other hosts, which come last.
        also: lines about those hosts.
    """
    from rich.console import Group  # noqa: PLC0415 -- only to draw

    rows = [*(list(member_cells(view)) for view in seen.members), *more]
    above = [tables.cell(*one) for one in notice_lines(seen)]
    below = [tables.cell(*one) for one in (*note_lines(seen), *also)]
    return Group(*above, *([roster_table(rows)] if rows else []), *below)


def roster_table(rows: Sequence[Sequence[Cell]]) -> tables.FittedTable:
    elsewhere = any("@" in row[0][0] for row in rows)
    return tables.FittedTable(HEADINGS, rows, NUMBERS, _FAR_SHAPE if elsewhere else SHAPE)


def notice_lines(seen: Overview) -> list[Cell]:
    """Return the lines about members that need the person, with the commands that help."""
    lines = [(line, one.kind) for one in seen.notices for line in one.lines]
    return [(line, _NOTICE_COLOURS.get(kind, "yellow")) for line, kind in lines]


def note_lines(seen: Overview) -> list[Cell]:
    """Return the other lines about the team and its members."""
    paths, found = seen.paths, list[tuple[str, str]]()
    if not seen.members:
        empty = "nobody is in the team yet; `teamctl spawn NAME ROLE PROMPT` adds someone"
        found.append((paths.add_team_option(empty), ""))
    if seen.untrusted_sentence:
        found.append((seen.untrusted_sentence, "yellow"))
    if seen.trouble:
        found.append((seen.trouble, "red"))
    for view in seen.members:
        found += _notes(seen, view)
    # Of an outage there is a notice.
    failing = (calls for calls in find_failing(seen.members) if not calls.is_outage)
    found += [(f"{', '.join(calls.names)}: {calls.cause}", "yellow") for calls in failing]
    if seen.ahead:
        found.append((seen.ahead.line, "cyan"))
    if seen.team.sandbox and seen.members:
        calm = seen.team.sandbox.startswith(SANDBOXED)
        found.append((f"sandbox: {seen.team.sandbox}", "bright_black" if calm else "yellow"))
    return found


def _notes(seen: Overview, view: MemberView) -> Iterator[Cell]:
    """Yield the lines about one member that do not fit a column."""
    member = view.member
    own = (one.kind for one in seen.notices if one.about == member.name)
    told = any(kind is not NoticeKind.REJECTED for kind in own)
    if member.reason and not told:
        yield f"{member.name}: {' '.join(member.reason.split())}", ""
    if view.copy:
        yield f"{member.name}: {describe_copy(view.copy)}", ""
    if view.trouble:
        yield f"{member.name}: {view.trouble}", "red"
    if member.sandbox not in (None, seen.team.sandbox):
        yield f"{member.name}: sandbox {member.sandbox}", "yellow"


def describe_copy(copy: dict[str, Any]) -> str:
    """Return the state of a working copy, from `MemberView.copy`; zeros are left out."""
    if copy["ahead"] is None:
        return str(copy["trouble"])
    ahead, files = copy["ahead"], copy["uncommitted"]
    said = [f"branch {copy['branch']} of its copy" if copy["branch"] else "on no branch"]
    if ahead:
        said.append(f"{ahead} commit{'' if ahead == 1 else 's'} ahead")
    if files:
        said.append(f"{files} uncommitted file{'' if files == 1 else 's'}")
    return ", ".join(said)


def member_cells(view: MemberView) -> Iterator[Cell]:
    """Yield the cells of a member's row."""
    member, alive = view.member, view.alive
    yield member.name, member.color if member.color in COLOURS else ""  # a style may hold a link
    yield member.role, ""
    yield view.state_in_words, output.STATUS_COLOURS[view.state]
    yield output.ago(view.since), ""
    yield view.describes or "-", "yellow" if view.retry else ""
    figures = (
        str(member.pid) if alive else "-",
        output.ago(member.since) if alive else "-",
        "-" if view.cpu_seconds is None else f"{view.cpu_seconds:.1f}s",
        "-" if view.memory_bytes is None else output.count(view.memory_bytes),
        "-" if view.context is None else f"{view.context:.0%}",
        str(member.restarts),
        "?" if view.queued is None else str(view.queued),
        output.count(member.turns),
        output.count(member.input_tokens),
        output.count(member.output_tokens),
        "?" if view.account is None else output.cost(view.account),
    )
    yield from ((figure, "") for figure in figures)
