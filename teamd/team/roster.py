"""The roster `config.json`: the members of a team and their states."""

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
from teamd.files.file_stamp import Version, version_of
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, USER
from teamd.team.member import COLOURS, Member
from teamd.team.states import Status

FORMAT: Final = 1
_END: Final = (b"]}", b"")


@dataclass(frozen=True, kw_only=True)
class Team:
    """The content of `config.json`.

    Attributes:
        sandbox: describes the sandbox of commands, in a line.
        merges: the person's repository, and the branch in it into which the queue merges.
        format: the format number of the file that was read; 0 for one without a number.
    """

    name: str = "default"
    members: tuple[Member, ...] = ()
    sandbox: str = ""
    merges: tuple[Path, str] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    format: int = field(default=FORMAT, compare=False)

    @property
    def person(self) -> str:
        """The person's inbox: `user` while an agent leads the team, otherwise `lead`."""
        leader = self.find(LEAD)
        return LEAD if leader is None or leader.status is Status.SHUTDOWN else USER

    @property
    def person_inboxes(self) -> tuple[str, ...]:
        """The inboxes with the person's mail: `user` keeps mail from when an agent led the team."""
        return tuple(dict.fromkeys((USER, self.person)))

    def find(self, name: str) -> Member | None:
        """Return the member of that name, ignoring case, or `None`."""
        place = self._places.get(name.lower())
        return None if place is None else self.members[place]

    def get(self, name: str) -> Member:
        """Return the member of that name, ignoring case.

        Raises:
            UnknownTeammate: no member has the name; the sentence lists the members.
        """
        member = self.find(name)
        if member is None:
            raise UnknownTeammate(name, [m.name for m in self.members])
        return member

    def with_member(self, member: Member) -> Team:
        """Return the team with that member added, or replaced if the name exists."""
        place = self._places.get(member.name.lower())
        if place is None:
            return replace(self, members=(*self.members, member))
        return replace(self, members=(*self.members[:place], member, *self.members[place + 1 :]))

    def with_new(self, name: str, **values: Any) -> Team:
        """Return the team with a new member in the next colour."""
        agent_id, color = f"{name}@{self.name}", COLOURS[len(self.members) % len(COLOURS)]
        return self.with_member(Member(name=name, agent_id=agent_id, color=color, **values))

    def without(self, name: str) -> Team:
        """Return the team without the member of that name."""
        gone = self.find(name)
        return replace(self, members=tuple(one for one in self.members if one is not gone))

    def encode(self) -> bytes:
        """Return the content of `config.json`: a line for each member."""
        head = {
            "format": FORMAT,
            **self.extra,
            "team_name": self.name,
            "sandbox": self.sandbox,
            **({"merges": [str(one) for one in self.merges]} if self.merges else {}),
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


_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Roster:
    """Reads and changes one team's `config.json`."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._known: tuple[bytes, Team] | None = None  # the content last read or written

    def read(self) -> Team:
        """Return the current team; an empty one if there is no roster yet.

        An unchanged team is the same object.

        Raises:
            StoreError: the roster is damaged or from a newer version.
        """
        content = files.read(self._paths.config)
        return Team(name=self._paths.default_name) if content is None else self._decode(content)

    def find(self, name: str) -> Member | None:
        """Return the member of that name, see `Team.find`; raises the errors of `read`."""
        return self.read().find(name)

    def get(self, name: str) -> Member:
        """Return the member of that name, see `Team.get`; raises the errors of `read`, too."""
        return self.read().get(name)

    def team_name(self) -> str:
        """Return the team's name; raises the errors of `read`."""
        return self.read().name

    def version(self) -> Version | None:
        """Return a value that changes when the file is replaced; `None` if it does not exist."""
        return version_of(self._paths.config)

    def person(self) -> str:
        """Return the name of the person's inbox, see `Team.person`.

        Raises:
            StoreError: as for `read`.
        """
        return self.read().person

    def above(self, name: str) -> str:
        """Return the name to which a member reports.

        An agent that leads the team reports to the person. Other members report to the lead or, if
        no agent leads this team, to the agent of another team that spawned them.

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
        """Read, change and replace the roster under its lock, unless `change` changes nothing."""
        with locks.locked(self._paths.config_lock):
            before = files.read(self._paths.config)
            old = Team(name=self._paths.default_name) if before is None else self._decode(before)
            if before is not None and old.format < FORMAT:
                files.replace(self._paths.config.with_suffix(f".format-{old.format}.json"), before)
            new = change(old)
            if before is None or new != old:
                new = new if new.format == FORMAT else replace(new, format=FORMAT)
                content = new.encode()
                files.replace(self._paths.config, content)
                self._known = content, new
            else:  # a killed writer or a failed disk may have left it unsynced
                files.make_durable(self._paths.config)
            return new

    def replace_damaged(self, team: Team) -> Path:
        """Replace a damaged roster, and keep the damaged file.

        Returns:
            The path of the damaged file.
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
        found = document.pop("format", 0)  # first: a newer format may change the other keys
        if not isinstance(found, int) or found > FORMAT:
            raise StoreError(
                f"{self._paths.config} has format {found}, this teamd knows up to {FORMAT}; "
                "use a newer teamd"
            )
        name = document.pop("team_name", "default")
        sandbox = str(document.pop("sandbox", ""))
        merges = None
        match document.pop("merges", None):
            case [str(folder), str(into)]:
                merges = Path(folder), into
        if "members" not in document:
            raise ValueError("it lists no members")
        members = tuple(Member.decode(one, team=name) for one in document.pop("members"))
        if len({member.name.lower() for member in members}) < len(members):
            raise ValueError("two members have one name")
        extra = MappingProxyType(document)
        return Team(
            name=name, members=members, sandbox=sandbox, merges=merges, extra=extra, format=found
        )
