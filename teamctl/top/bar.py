"""The title, request and key lines, and the notes about the team."""

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
_ALWAYS: Final = ("? keys", "q quit")  # these lead to all others


def title(seen: Overview, width: int, teams: Sequence[str] = ()) -> Line:
    """Return the title: the team's name and size, and whether teamd runs.

    Args:
        seen: the state of the team.
        width: of the screen.
        teams: the names of the project's teams, in the order of their keys.
    """
    count = len(seen.members)
    members = "1 member" if count == 1 else f"{count} members"
    runs = "no teamd runs" if seen.supervisor is None else "teamd runs"
    shown = f"{in_a_line(seen.team.name)} · {members} · {runs}"
    if len(teams) > 1:
        shown += " · " + " ".join(f"{n}:{name or '.team'}" for n, name in enumerate(teams, 1))
    return ((cut(shown, width), "bold"),)


def folded_title(seen: Overview, width: int, teams: Sequence[str] = ()) -> Line:
    """Return `title` and `waiting` as one line, without the facts that do not fit."""
    count, name = len(seen.members), in_a_line(seen.team.name)
    stopped = "no teamd" if seen.supervisor is None else ""
    members = "1 member" if count == 1 else f"{count} members"
    others = [stopped, members]
    shown = _count(seen)
    # With several teams the name comes first, since number keys switch between them.
    for fact in filter(None, [name, *others] if len(teams) > 1 else [*others, name]):
        if cells(f"{shown} · {fact}") <= width:
            shown += f" · {fact}"
    return ((shown, "bold yellow" if seen.waiting else "bold"),)


def keys(width: int, *, readonly: bool, notes: int = 0) -> Line:
    """Return the line of keys; on a narrow screen the last one before `?` is left out first.

    Args:
        width: of the screen.
        readonly: whether actions are refused.
        notes: the number of notes out of sight.
    """
    there = f"Tab {notes} note{'' if notes == 1 else 's'}"
    named = [*([there] if notes else []), *(_READ_ONLY_KEYS if readonly else _KEYS)]
    while named and len("  ".join((*named, *_ALWAYS))) > width:
        named.pop()
    return (("  ".join((*named, *_ALWAYS)), ""),)


def waiting(seen: Overview) -> Line:
    """Return the line that counts the open requests."""
    if not seen.waiting:
        return (("no request waits for you", ""),)
    return ((_count(seen), "bold yellow"),)


def ask(one: OpenRequest) -> Line:
    """Return a request as a line, with its exact text."""
    asked = one.approval
    who = f"{in_a_line(asked.asker)} {output.ago(asked.asked)} {kind_of(one)}  "
    return (who, "yellow"), (in_a_line(asked.what), "bold")


def kind_of(one: OpenRequest) -> str:
    """Return the kind of a request in a word."""
    kind = one.approval.type.removesuffix("_request").removesuffix("_approval")
    return in_a_line(kind)


def notes(seen: Overview) -> list[Line]:
    """Return the other notices with their commands, then the notes about the team."""
    others = [one for one in seen.notices if one.kind is not NoticeKind.WAITING]
    told = [(text, "yellow") for one in others for text in one.lines]
    return [((in_a_line(text), style),) for text, style in (*told, *roster_table.note_lines(seen))]


def _count(seen: Overview) -> str:
    count = len(seen.waiting)
    return f"{count} {'waits' if count == 1 else 'wait'} for you"
