"""A team as its roster says it, and how that is written: a line for each member.

Whoever looks for one of hundreds decodes that line alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from teamd.errors import UnknownTeammate
from teamd.messages import LEAD, NAME, USER
from teamd.states import Status
from teamd.team.member import COLOURS, Member, MemberLines

FORMAT: Final = 1
_OPENING: Final = b'"members": ['
_END: Final = (b"]}", b"")
_LAST: Final = b"\n".join(_END)
_NAMED: Final = re.compile(rb'\{"name": "%b", "' % NAME.pattern.encode())


@dataclass(frozen=True, kw_only=True)
class Team:
    """Everything that `config.json` says; `sandbox` is what stands around commands, in a line."""

    name: str = "default"
    members: tuple[Member, ...] = ()
    sandbox: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def person(self) -> str:
        """The name of the person's inbox: `lead`, unless there is an agent that leads."""
        return person_of(self.find)

    def find(self, name: str) -> Member | None:
        """The member of that name, compared without case."""
        place = self._places.get(name.lower())
        return None if place is None else self.members[place]

    def get(self, name: str) -> Member:
        """The member of that name, compared without case.

        Raises:
            UnknownTeammate: there is none; the sentence names who there is.
        """
        member = self.find(name)
        if member is None:
            raise UnknownTeammate(name, [m.name for m in self.members])
        return member

    def with_member(self, member: Member) -> Team:
        """The team with that member added, or in the place of the one of its name."""
        place = self._places.get(member.name.lower())
        if place is None:
            return replace(self, members=(*self.members, member))
        team = replace(self, members=(*self.members[:place], member, *self.members[place + 1 :]))
        vars(team)["_places"] = self._places  # all stand where they stood
        return team

    def with_new(self, name: str, **values: Any) -> Team:
        """The team with one more member, in the next colour."""
        agent_id, color = f"{name}@{self.name}", COLOURS[len(self.members) % len(COLOURS)]
        return self.with_member(Member(name=name, agent_id=agent_id, color=color, **values))

    def without(self, name: str) -> Team:
        """The team without the member of that name."""
        gone = self.find(name)
        return replace(self, members=tuple(one for one in self.members if one is not gone))

    def encode(self, lines: MemberLines | None = None) -> bytes:
        """The content of `config.json`: a line for each member."""
        head = {
            "format": FORMAT,
            **self.extra,
            "team_name": self.name,
            "sandbox": self.sandbox,
            "members": [],
        }
        opening = json.dumps(head, ensure_ascii=False).encode("utf-8", "replace")
        members = b",\n".join((lines or MemberLines()).encode(self.members, team=self.name))
        return b"\n".join((opening.removesuffix(_END[0]), members, *_END))

    @cached_property
    def _places(self) -> Mapping[str, int]:
        places: dict[str, int] = {}
        for place, member in enumerate(self.members):
            places.setdefault(member.name.lower(), place)
        return places


def person_of(find: Callable[[str], Member | None]) -> str:
    """Return the name of the person's inbox, given what finds a member by its name."""
    leader = find(LEAD)
    return LEAD if leader is None or leader.status is Status.SHUTDOWN else USER


def is_as_written_here(content: bytes) -> bool:
    """Return whether the members stand between a first and a last line as `encode` writes them.

    Each has a line, and no other line begins as theirs do.
    """
    first = content.find(b"\n")
    if not (content.endswith(b"\n" + _LAST) and content[:first].endswith(_OPENING)):
        return False
    # To look for one character takes a tenth of the time.
    if content.find(b"]") == len(content) - len(_LAST):
        return True
    return content.count(b"\n{") == content.count(b"\n") - len(_END)


def opening_of(content: bytes) -> bytes:
    """Return the JSON of all but the members, of a roster that is written as here."""
    return content[: content.index(b"\n")] + _END[0]


def find_line(content: bytes, name: str) -> bytes | None:
    """Return the first line with that very name, of a roster that is written as here."""
    if (at := content.find(b'"name": %b' % json.dumps(name).encode(), content.index(b"\n"))) < 0:
        return None
    return content[content.rfind(b"\n", 0, at) + 1 : content.index(b"\n", at)].removesuffix(b",")


def member_lines(content: bytes) -> list[bytes]:
    """Return the lines that are members; none where the file is not written as here."""
    if not is_as_written_here(content):
        return []
    _, *lines = content.split(b"\n")
    members = [line.removesuffix(b",") for line in lines[:-2]]
    separated = [line + b"," for line in members[:-1]] + members[-1:]
    whole = all(line[:1] + line[-1:] == b"{}" for line in members)
    return members if whole and separated == lines[:-2] else []


def is_nowhere(content: bytes, name: str) -> bool:
    """Return whether no member has that name: it stands nowhere, in any case and no escape.

    Other programs send mail under names of their own. A line without a whole name may be the one
    of that member, and whoever cannot read it must not take the member for nobody.
    """
    if b"\\" in content and b"\\u" in content:  # to look for one character is soon done
        return False
    if b'"%b"' % name.lower().encode() in content.lower():
        return False
    lines = content.split(b"\n")[1 : -len(_END)]
    return all(map(_NAMED.match, lines))


def format_of(content: bytes) -> int:
    """Return the format in which a roster is written; 0 where it does not say.

    Raises:
        ValueError, AttributeError, TypeError: it is damaged.
    """
    opening = opening_of(content) if member_lines(content) else content
    return int(json.loads(opening).get("format", 0))
