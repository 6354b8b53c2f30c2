"""The roster `config.json`: who is in the team and how each of them is."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from teamd.errors import DamagedRoster, StoreError, UnknownTeammate
from teamd.files import files, locks
from teamd.files.file_stamp import Version, is_settled, version_of
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, NAME, USER
from teamd.team.member import COLOURS, Member, MemberLines
from teamd.team.states import Status

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


def has_no_member(content: bytes, name: str) -> bool:
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


# One step of whoever looks: a second change within a tick of the clock is seen as late as that.
_STEP_SECONDS: Final = 0.01
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Roster:
    """Reads and changes one team's `config.json`."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._lines = MemberLines()
        self._known: tuple[bytes, Team] | None = None  # what was read or written last
        self._settled: Version | None = None  # the version of it that no change can have
        # What of a content was understood: that it is written as here, the team's name in its first
        # line, what one line said, and whose names stood nowhere.
        self._ours = b""
        self._opening: tuple[bytes, str] = (b"", "")
        self._alone: tuple[bytes, Member | None] = (b"", None)
        self._nobody: tuple[bytes, set[str]] = (b"", set())
        self._text: tuple[Version | None, bytes | None] = (None, None)  # of a version for sure
        # What was read just now, its version, and until when that is believed.
        self._recent: tuple[Version | None, float, bytes | None] = (None, 0.0, None)

    def read(self) -> Team:
        """The team as it is; an empty one where there is no roster yet.

        What has not changed since is the same object.

        Raises:
            StoreError: it is damaged, or made by a newer version.
        """
        version = self.version()
        if self._known is not None and version is not None and version == self._settled:
            return self._known[1]
        content, settled = self._content(version, believes=False)
        team = Team() if content is None else self._decode(content)
        self._settled = settled
        return team

    def find(self, name: str) -> Member | None:
        """The member of that very name; of a team that has changed, only its line is decoded.

        Where hundreds begin to work at once, each would decode all others for each of its steps.

        Raises:
            StoreError: as for `read`.
        """
        version = self.version()
        if version is None or version != self._settled:
            with suppress(*_DAMAGED):  # `read` says what is wrong, if anything is
                content = self._content(version)[0] or b""
                if self._is_known_nowhere(content, name):
                    return None
                if (member := self._find_alone(content, name)) is not None:
                    return member
                if self._is_nowhere(content, name):
                    return None
        return self.read().find(name)

    def get(self, name: str) -> Member:
        """The member of that very name, as `find` does.

        Raises:
            UnknownTeammate: there is none; the sentence names who there is.
            StoreError: as for `read`.
        """
        return self.find(name) or self.read().get(name)

    def team_name(self) -> str:
        """The team's name; no member is decoded for it.

        Raises:
            StoreError: as for `read`.
        """
        version = self.version()
        if version is not None and version != self._settled:
            with suppress(*_DAMAGED):  # `read` says what is wrong, if anything is
                content = self._content(version)[0] or b""
                if self._is_ours(content):
                    return self._team_named_in(content)
        return self.read().name

    def version(self) -> Version | None:
        """Differs whenever the file was replaced or changed; `None` where there is none.

        Whoever kept a replaced one open would be the one to remove it, at the next look: 0.6 ms.
        """
        return version_of(self._paths.config)

    def person(self) -> str:
        """The name of the person's inbox: `lead`, unless there is an agent that leads.

        Raises:
            StoreError: as for `read`.
        """
        return person_of(self.find)

    def above(self, name: str) -> str:
        """Return who has to know how a member is, and to whom it reports.

        Of an agent that leads that is the person; of any other the lead or, where no agent leads
        this team, whoever has put it here from another one.

        Raises:
            StoreError: as for `read`.
        """
        if name.lower() == LEAD:
            return USER
        member = self.find(name)
        if member is None or self.person() != LEAD:
            return LEAD
        return member.spawned_by or LEAD

    def update(self, change: Callable[[Team], Team]) -> Team:
        """Read, change and replace the roster under its lock; nothing is written for no change."""
        with locks.locked(self._paths.config_lock):
            before = files.read(self._paths.config)
            old = Team() if before is None else self._decode(before)
            if before is not None and (older := format_of(before)) < FORMAT:
                files.replace(self._paths.config.with_suffix(f".format-{older}.json"), before)
            new = change(old)
            if before is None or new != old:
                content = new.encode(self._lines)
                files.replace(self._paths.config, content)
                self._known, self._settled = (content, new), None
                self._recent = None, 0.0, None
            else:  # its writer may have been killed, or the disk have failed, before it was safe
                files.make_durable(self._paths.config)
            return new

    def replace_damaged(self, team: Team) -> Path:
        """Put a roster in the place of a damaged one, which is kept.

        Returns:
            Where the damaged one is now.
        """
        with locks.locked(self._paths.config_lock):
            kept = self._paths.config.with_suffix(f".damaged-{time.time_ns()}.json")
            files.replace(kept, files.read(self._paths.config) or b"")
            files.replace(self._paths.config, team.encode())
        return kept

    def _content(
        self, version: Version | None, *, believes: bool = True
    ) -> tuple[bytes | None, Version | None]:
        """Return what the file holds that had this version just now, and that where it is sure.

        Args:
            version: as it was just now.
            believes: whether what was read a moment ago will do.
        """
        if version is not None and version == self._text[0]:
            return self._text[1], version
        settled = version if is_settled(version) else None  # before it is read
        known, until, content = self._recent
        now = time.monotonic()
        if believes and not settled and version is not None and version == known and now < until:
            return content, None
        content = files.read(self._paths.config)
        self._recent = version, now + _STEP_SECONDS, content
        if settled is not None:
            self._text = settled, content
        return content, settled

    def _find_alone(self, content: bytes, name: str) -> Member | None:
        """Return a member by the first line with its name; `None` where there is none of its own.

        Raises:
            StoreError: the roster was made by a newer version.
            ValueError, KeyError, TypeError, AttributeError, RecursionError: it is not so written.
        """
        if self._alone_is(name) and self._alone[0] == content:
            return self._alone[1]
        if not self._is_ours(content):
            return None
        team, line = self._team_named_in(content), find_line(content, name)
        if line is None:
            return None
        member = Member.decode(json.loads(line), team=team)
        self._alone = content, member
        return member if member.name == name else None

    def _team_named_in(self, content: bytes) -> str:
        """Return the team's name by the first line of a roster that is written as here."""
        opening = opening_of(content)
        if opening != self._opening[0]:
            head = json.loads(opening)
            self._check_format(head.get("format", 0))
            self._opening = opening, head.get("team_name", "default")
        return self._opening[1]

    def _is_nowhere(self, content: bytes, name: str) -> bool:
        """Return whether no member has that name, by what is read alone."""
        nowhere = self._is_ours(content) and has_no_member(content, name)
        if nowhere:
            if self._nobody[0] != content:
                self._nobody = content, set()
            self._nobody[1].add(name)
        return nowhere

    def _is_known_nowhere(self, content: bytes, name: str) -> bool:
        return name in self._nobody[1] and self._nobody[0] == content

    def _is_ours(self, content: bytes) -> bool:
        """Return whether it is written as here."""
        if not content or content != self._ours:
            if not is_as_written_here(content):
                return False
            self._ours = content
        return True

    def _alone_is(self, name: str) -> bool:
        return self._alone[1] is not None and self._alone[1].name == name

    def _decode(self, content: bytes) -> Team:
        if self._known is None or self._known[0] != content:
            try:
                self._known = content, self._parse(content)
            except _DAMAGED as error:
                raise DamagedRoster(self._paths.config, str(error)) from error
        return self._known[1]

    def _parse(self, content: bytes) -> Team:
        lines = member_lines(content)
        if lines:
            with suppress(*_DAMAGED):  # the other way says what is wrong, if anything is
                return self._team(opening_of(content), lines)
        return self._team(content, [])

    def _team(self, content: bytes, lines: list[bytes]) -> Team:
        document = json.loads(content)
        self._check_format(document.pop("format", 0))  # before what a newer one may say anew
        name = document.pop("team_name", "default")
        sandbox = str(document.pop("sandbox", ""))
        if "members" not in document:
            raise ValueError("it lists no members")
        found = document.pop("members")
        if lines:
            members = self._lines.decode(lines, team=name)
        else:
            members = tuple(Member.decode(one, team=name) for one in found)
        if len({member.name.lower() for member in members}) < len(members):
            raise ValueError("two members have one name")
        return Team(name=name, members=members, sandbox=sandbox, extra=MappingProxyType(document))

    def _check_format(self, found: object) -> None:
        if not isinstance(found, int) or found > FORMAT:
            raise StoreError(
                f"{self._paths.config} has format {found}, this teamd knows up to {FORMAT}; "
                "use a newer teamd"
            )
