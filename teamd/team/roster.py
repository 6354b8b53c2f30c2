"""The roster `config.json`: who is in the team and how each of them is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from teamd.errors import DamagedRoster, StoreError, UnknownTeammate
from teamd.files import files, locks
from teamd.files.file_stamp import Version, is_settled, version_of
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, USER
from teamd.team.member import COLOURS, Member
from teamd.team.states import Status

FORMAT: Final = 1
_END: Final = (b"]}", b"")


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
        return replace(self, members=(*self.members[:place], member, *self.members[place + 1 :]))

    def with_new(self, name: str, **values: Any) -> Team:
        """The team with one more member, in the next colour."""
        agent_id, color = f"{name}@{self.name}", COLOURS[len(self.members) % len(COLOURS)]
        return self.with_member(Member(name=name, agent_id=agent_id, color=color, **values))

    def without(self, name: str) -> Team:
        """The team without the member of that name."""
        gone = self.find(name)
        return replace(self, members=tuple(one for one in self.members if one is not gone))

    def encode(self) -> bytes:
        """Return the content of `config.json`: a line for each member."""
        head = {
            "format": FORMAT,
            **self.extra,
            "team_name": self.name,
            "sandbox": self.sandbox,
            "members": [],
        }
        opening = json.dumps(head, ensure_ascii=False).encode("utf-8", "replace")
        members = b",\n".join(map(Member.encode_line, self.members))
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


def format_of(content: bytes) -> int:
    """Return the format of a roster's file; 0 for one of the lessons.

    Raises:
        ValueError, AttributeError, TypeError: it is damaged.
    """
    return int(json.loads(content).get("format", 0))


_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Roster:
    """Reads and changes one team's `config.json`."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._known: tuple[bytes, Team] | None = None  # what was read or written last
        self._settled: Version | None = None  # its version, once no change can have the same

    def read(self) -> Team:
        """Return the team as it is; an empty one if there is no roster yet.

        An unchanged team is the same object.

        Raises:
            StoreError: it is damaged, or made by a newer version.
        """
        version = self.version()
        if self._known is not None and version is not None and version == self._settled:
            return self._known[1]
        settled = version if is_settled(version) else None  # before it is read
        content = files.read(self._paths.config)
        team = Team() if content is None else self._decode(content)
        self._settled = settled
        return team

    def find(self, name: str) -> Member | None:
        """Return the member of that name, see `Team.find`; raises what `read` does."""
        return self.read().find(name)

    def get(self, name: str) -> Member:
        """Return the member of that name, see `Team.get`; raises what `read` does as well."""
        return self.read().get(name)

    def team_name(self) -> str:
        """Return the team's name; raises what `read` does."""
        return self.read().name

    def version(self) -> Version | None:
        """Return a value that differs whenever the file was replaced; `None` without a file."""
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
                content = new.encode()
                files.replace(self._paths.config, content)
                self._known, self._settled = (content, new), None
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

    def _decode(self, content: bytes) -> Team:
        if self._known is None or self._known[0] != content:
            try:
                self._known = content, self._parse(content)
            except _DAMAGED as error:
                raise DamagedRoster(self._paths.config, str(error)) from error
        return self._known[1]

    def _parse(self, content: bytes) -> Team:
        document = json.loads(content)
        self._check_format(document.pop("format", 0))  # before anything that a newer one may change
        name = document.pop("team_name", "default")
        sandbox = str(document.pop("sandbox", ""))
        if "members" not in document:
            raise ValueError("it lists no members")
        members = tuple(Member.decode(one, team=name) for one in document.pop("members"))
        if len({member.name.lower() for member in members}) < len(members):
            raise ValueError("two members have one name")
        return Team(name=name, members=members, sandbox=sandbox, extra=MappingProxyType(document))

    def _check_format(self, found: object) -> None:
        if not isinstance(found, int) or found > FORMAT:
            raise StoreError(
                f"{self._paths.config} has format {found}, this teamd knows up to {FORMAT}; "
                "use a newer teamd"
            )
