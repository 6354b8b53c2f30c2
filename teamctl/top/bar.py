"""The lines above the roster: which team, who waits for the person, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from teamctl.render import output, roster_table
from teamctl.top.columns import Line, cells, cut, in_a_line
from teamd.overview.notices import NoticeKind
from teamd.overview.overview import Overview

if TYPE_CHECKING:
    from teamd.overview.requests import OpenRequest

_KEYS: Final = ("a approve", "r reject", "e all of it", "s send")
_READ_ONLY_KEYS: Final = ("e all of it", "Enter look")
_ALWAYS: Final = ("? keys", "q quit")  # by these all others are found


def title(seen: Overview, width: int, teams: Sequence[str] = ()) -> Line:
    """Return the first line: the team, how many are in it, and whether teamd runs.

    Args:
        seen: the team.
        width: of the screen.
        teams: the names of all teams of the project, in the order of their keys.
    """
    count = len(seen.members)
    members = "1 member" if count == 1 else f"{count} members"
    runs = "no teamd runs" if seen.supervisor is None else "teamd runs"
    shown = f"{in_a_line(seen.team.name)} · {members} · {runs}"
    if len(teams) > 1:
        shown += " · " + " ".join(f"{n}:{name or '.team'}" for n, name in enumerate(teams, 1))
    return ((cut(shown, width), "bold"),)


def folded_title(seen: Overview, width: int, teams: Sequence[str] = ()) -> Line:
    """Return `title` and `waiting` in one line; a fact that does not fit is left out whole."""
    count, name = len(seen.members), in_a_line(seen.team.name)
    stopped = "no teamd" if seen.supervisor is None else ""
    members = "1 member" if count == 1 else f"{count} members"
    others = [stopped, members]
    shown = _count(seen)
    # Which of several teams it is comes first of these: it is asked for by a number.
    for fact in filter(None, [name, *others] if len(teams) > 1 else [*others, name]):
        if cells(f"{shown} · {fact}") <= width:
            shown += f" · {fact}"
    return ((shown, "bold yellow" if seen.waiting else "bold"),)


def keys(width: int, *, readonly: bool, notes: int = 0) -> Line:
    """Return the line that says which keys there are; the last before `?` goes first.

    Args:
        width: of the screen.
        readonly: whether nothing may be changed.
        notes: how many notes are out of sight.
    """
    there = f"Tab {notes} note{'' if notes == 1 else 's'}"
    named = [*([there] if notes else []), *(_READ_ONLY_KEYS if readonly else _KEYS)]
    while named and len("  ".join((*named, *_ALWAYS))) > width:
        named.pop()
    return (("  ".join((*named, *_ALWAYS)), ""),)


def waiting(seen: Overview) -> Line:
    """Return the line that says how many requests wait for the person."""
    if not seen.waiting:
        return (("no request waits for you", ""),)
    return ((_count(seen), "bold yellow"),)


def ask(one: OpenRequest) -> Line:
    """Return a request as a line, with exactly what it asks for."""
    asked = one.approval
    who = f"{in_a_line(asked.asker)} {output.ago(asked.asked)} {kind_of(one)}  "
    return (who, "yellow"), (in_a_line(asked.what), "bold")


def kind_of(one: OpenRequest) -> str:
    """Return what is asked for, in a word."""
    kind = one.approval.type.removesuffix("_request").removesuffix("_approval")
    return in_a_line(kind)


def notes(seen: Overview) -> list[Line]:
    """Return what a person should know besides: who needs one first, each with its command."""
    others = [one for one in seen.notices if one.kind is not NoticeKind.WAITING]
    told = [(text, "yellow") for one in others for text in one.lines]
    return [((in_a_line(text), style),) for text, style in (*told, *roster_table.note_lines(seen))]


def _count(seen: Overview) -> str:
    count = len(seen.waiting)
    return f"{count} {'waits' if count == 1 else 'wait'} for you"
