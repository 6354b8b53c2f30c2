"""The lines above the roster: which team, who waits for the person, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from teamctl import output
from teamctl.top.columns import cut, in_a_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from teamctl.plain_table import Cell
    from teamctl.top.columns import Line
    from teamctl.top.picture import Ask, Mate, Picture

KEYS: Final = "a approve  r reject  e all of it  s send  ? keys  q quit"
READ_ONLY_KEYS: Final = "e all of it  Enter look  ? keys  q quit"
_TROUBLE: Final = ("failed", "paused")


def title(picture: Picture, width: int, teams: Sequence[str] = ()) -> Line:
    """Return the first line: the team, how many are in it, and whether teamd runs.

    Args:
        picture: of the team.
        width: of the screen.
        teams: the names of all teams of the project, in the order of their keys.
    """
    count = len(picture.mates)
    members = "1 member" if count == 1 else f"{count} members"
    runs = "teamd runs" if picture.running else "no teamd runs"
    shown = f"{in_a_line(picture.name)} · {members} · {runs}"
    if len(teams) > 1:
        shown += " · " + " ".join(f"{n}:{name or '.team'}" for n, name in enumerate(teams, 1))
    return ((cut(shown, width), "bold"),)


def waiting(picture: Picture) -> Line:
    """Return the line that says how many requests wait for the person."""
    count = len(picture.asks)
    if not count:
        return (("nobody waits for you", ""),)
    return ((f"{count} {'waits' if count == 1 else 'wait'} for you", "bold yellow"),)


def ask(one: Ask) -> Line:
    """Return a request as a line, with exactly what it asks for."""
    who = f"{in_a_line(one.asker)} {in_a_line(one.kind)} {output.ago(one.asked)}  "
    return (who, "yellow"), (in_a_line(one.exact), "bold")


def notes(picture: Picture) -> list[Line]:
    """Return what a person should know besides, problems of members last."""
    told = [_note(cell) for cell in picture.notes]
    return told + [_trouble(mate) for mate in picture.mates if mate.state in _TROUBLE]


def _note(cell: Cell) -> Line:
    text, style = cell
    return ((in_a_line(text), style),)


def _trouble(mate: Mate) -> Line:
    why = f": {in_a_line(mate.reason)}" if mate.reason else ""
    return ((f"{mate.name} {mate.state}{why}", "yellow"),)
