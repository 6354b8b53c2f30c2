"""The lines that `top` draws around its lists, and its first screen.

The first screen is drawn before textual is loaded, so that it appears at once. Keys typed in the
meantime stay in the terminal until textual reads them.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.text import Text

from teamctl.render import output, roster_table, tables
from teamd.overview.members import MemberView, OpenRequest
from teamd.overview.notices import NoticeKind
from teamd.overview.overview import Overview

HEADINGS: Final = (
    "NAME", "ROLE", "STATUS", "FOR", "DOING", "CONTEXT", "COST", "MAIL", "TURNS", "CPU", "MEM",
)  # fmt: skip
TEAM: Final = "Team"
USAGE: Final = "Usage"
TEAM_TABS: Final = (TEAM, "Board", "Queue", USAGE, "Mail")
_ENTER: Final = "\033[?1049h\033[?25l\033[2J\033[H"
_LEAVE: Final = "\033[?25h\033[?1049l"
_MOST_ASKS: Final = 3


def in_a_line(text: str) -> str:
    """Return untrusted text as one line without control characters."""
    return " ".join(output.plain(text).split())


def line(*parts: tuple[str, str], width: int | None = None) -> Text:
    """Return texts and their styles as a line, with an ellipsis if it is wider than `width`."""
    made = Text.assemble(*parts)
    if width is not None:
        made.truncate(width, overflow="ellipsis")
    return made


def roster(seen: Overview, width: int) -> list[Text]:
    """Return the headings and a line for each member, as `teamctl team` shows them."""

    def cells(view: MemberView) -> list[tables.Cell]:
        found = dict(zip(roster_table.HEADINGS, roster_table.member_cells(view), strict=True))
        return [(in_a_line(found[one][0]), found[one][1]) for one in HEADINGS]

    rows, numbers, shape = map(cells, seen.members), roster_table.NUMBERS, roster_table.SHAPE
    # The scroll bar would hide the end of a line that is as wide as the screen.
    return tables.fit_lines(HEADINGS, rows, numbers, shape, width - 1, steady=True)


def title(seen: Overview, width: int, teams: Sequence[str] = ()) -> Text:
    """Return the title: the team's name and size, and whether teamd runs.

    Args:
        seen: the state of the team.
        width: of the screen.
        teams: the names of the project's teams, in the order of their keys.
    """
    runs = "no teamd runs" if seen.supervisor is None else "teamd runs"
    shown = f"{in_a_line(seen.team.name)} · {_members(seen)} · {runs}"
    if len(teams) > 1:
        shown += " · " + " ".join(f"{n}:{name or '.team'}" for n, name in enumerate(teams, 1))
    return line((shown, "bold"), width=width)


def folded_title(seen: Overview, width: int, teams: Sequence[str] = ()) -> Text:
    """Return `title` and `waiting` as one line, without the facts that do not fit."""
    name = in_a_line(seen.team.name)
    others = ["no teamd" if seen.supervisor is None else "", _members(seen)]
    shown = line((_count(seen), "bold yellow" if seen.waiting else "bold"))
    # With several teams the name comes first, since number keys switch between them.
    for fact in filter(None, [name, *others] if len(teams) > 1 else [*others, name]):
        more = line((f"{shown.plain} · {fact}", "bold yellow" if seen.waiting else "bold"))
        shown = more if more.cell_len <= width else shown
    return shown


def tab_bar(tabs: Sequence[str], opened: str, width: int) -> Text:
    """Return the names of the tabs and their keys, shortened for a narrow screen."""
    wide = [(f"[{one}] ", "bold") if one == opened else (f" {one}  ", "") for one in tabs]
    close = [(f"[{one}] ", "bold") if one == opened else (f"{one} ", "") for one in tabs]
    place = f" {tabs.index(opened) + 1} of {len(tabs)} "
    forms = (line(*wide, ("  ← → change tabs", "dim")), line(*close, ("← →", "dim")))
    fitting = (one for one in forms if one.cell_len <= width)
    alone = line((f"[{opened}]", "bold"), (f"{place}← →", "dim"), width=width)
    return next(fitting, alone)


def keys(width: int, named: Sequence[str], always: Sequence[str]) -> Text:
    """Return the line of keys; on a narrow screen the last named ones are left out.

    Args:
        width: of the screen.
        named: keys that `?` explains too.
        always: keys that lead to all others.
    """
    named = list(named)
    while named and len("  ".join((*named, *always))) > width:
        named.pop()
    return Text("  ".join((*named, *always)))


def waiting(seen: Overview) -> Text:
    """Return the line that counts the open requests."""
    if not seen.waiting:
        return Text("no request waits for you")
    return line((_count(seen), "bold yellow"))


def ask(one: OpenRequest, width: int | None = None) -> Text:
    """Return a request as a line, with its exact text."""
    asked = one.approval
    who = f"{in_a_line(asked.asker)} {output.ago(asked.asked)} {kind_of(one)}  "
    return line((who, "yellow"), (in_a_line(asked.line), "bold"), width=width)


def kind_of(one: OpenRequest) -> str:
    """Return the kind of a request in a word."""
    kind = one.approval.type.removesuffix("_request").removesuffix("_approval")
    return in_a_line(kind)


def notes(seen: Overview) -> list[Text]:
    """Return the other notices with their commands, then the notes about the team."""
    others = [one for one in seen.notices if one.kind is not NoticeKind.WAITING]
    told = [(text, "yellow") for one in others for text in one.lines]
    return [
        line((in_a_line(text), style)) for text, style in (*told, *roster_table.note_lines(seen))
    ]


def _members(seen: Overview) -> str:
    return "1 member" if len(seen.members) == 1 else f"{len(seen.members)} members"


def _count(seen: Overview) -> str:
    count = len(seen.waiting)
    return f"{count} {'waits' if count == 1 else 'wait'} for you"


def first_screen(seen: Overview, width: int) -> list[Text]:
    """Return the lines of the first screen from top to bottom."""
    asks = [ask(one, width) for one in seen.waiting[:_MOST_ASKS]]
    bar = tab_bar(TEAM_TABS, TEAM, width)
    return [title(seen, width), waiting(seen), *asks, bar, *roster(seen, width)]


@contextmanager
def taken_terminal(seen: Overview) -> Iterator[None]:
    """Show a team on the alternate screen during the `with` block; typed keys are not echoed."""
    if 0 in os.get_terminal_size(sys.stdout.fileno()):
        # As on a serial line. Textual would alternate between two sizes and redraw forever.
        os.environ |= {"COLUMNS": "80", "LINES": "24"}
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[0] &= ~(termios.ICRNL | termios.INLCR)  # Enter is not translated
    quiet[3] &= ~(termios.ECHO | termios.ICANON)  # Ctrl-C still ends the program
    termios.tcsetattr(fd, termios.TCSANOW, quiet)
    try:
        _write(_ENTER)
        console = tables.console()
        for one in first_screen(seen, console.width)[: console.height - 1]:
            console.print(one, no_wrap=True, overflow="crop")
        yield
    finally:
        _write(_LEAVE)
        termios.tcsetattr(fd, termios.TCSANOW, before)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
