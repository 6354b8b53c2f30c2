"""The roster `config.json`: who is in the team and how each of them is."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from teamd.errors import DamagedRoster, StoreError, UnknownTeammate
from teamd.files import files, locks
from teamd.messages import ALL, LEAD, NAME, TEAMD, USER
from teamd.process_id import Identity
from teamd.states import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from teamd.files.paths import TeamPaths

FORMAT: Final = 1
_SETTLED_NANOSECONDS: Final = 100_000_000
_KINDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("name", "agent_id", "role", "color"), str),
    **dict.fromkeys(("model", "reason", "sandbox", "spawned_by"), str | None),
    **dict.fromkeys(("turns", "input_tokens", "output_tokens"), int),
    **dict.fromkeys(("started", "since", "until"), int | float | None),
    "pid": int | None,
    "plan": bool,
}
_NO_MEMBERS: Final = frozenset({ALL, TEAMD, USER})
COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "red")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One teammate as the roster shows it.

    Attributes:
        pid: its process, `None` while it has none.
        started: when that process started, see `Identity`.
        since: seconds since the epoch when that process was forked.
        turns: model calls so far.
        input_tokens: all of them, cached ones included.
        plan: whether it acts only once a plan of its own is approved.
        reason: why it is paused or failed, in a sentence.
        sandbox: what stands around its commands, in a line.
        until: when that ends by itself, in seconds since the epoch; `None` where nobody knows.
        spawned_by: the address of the agent of another team that has put it here, if one has.
        extra: keys of other programs, kept as they came.
    """

    name: str
    agent_id: str
    role: str
    status: Status
    pid: int | None = None
    started: float | None = None
    since: float | None = None
    model: str | None = None
    color: str = COLOURS[0]
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    plan: bool = False
    reason: str | None = None
    sandbox: str | None = None
    until: float | None = None
    spawned_by: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def process(self) -> Identity | None:
        """The process that the roster names; it may have ended since."""
        if self.pid is None or self.started is None:
            return None
        return Identity(pid=self.pid, started=self.started)

    def encode(self) -> dict[str, Any]:
        """The member as it stands in `config.json`."""
        own = {key: getattr(self, key) for key in _OWN_KEYS}
        return {**self.extra, **own, "status": str(self.status)}

    @classmethod
    def decode(cls, found: Mapping[str, Any], *, team: str) -> Member:
        """Read a member; all but the name may be missing, as in the lessons' rosters."""
        rest = dict(found)
        for key, kind in _KINDS.items():
            if key in rest and not isinstance(rest[key], kind):
                raise TypeError(f"a member's {key!r} is {rest[key]!r}")
        name = rest["name"]
        if not NAME.fullmatch(name) or name.lower() in _NO_MEMBERS:  # it is a part of paths
            raise ValueError(f"a member's 'name' is {name!r}")
        own: dict[str, Any] = {"agent_id": f"{name}@{team}", "role": "", "status": Status.IDLE}
        own |= {key: rest.pop(key) for key in _OWN_KEYS if key in rest}
        own["status"] = Status(own["status"])
        return cls(**own, extra=MappingProxyType(rest))


_OWN_KEYS: Final = tuple(one.name for one in fields(Member) if one.name != "extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Everything that `config.json` says; `sandbox` is what stands around commands, in a line."""

    name: str = "default"
    members: tuple[Member, ...] = ()
    sandbox: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def person(self) -> str:
        """The name of the person's inbox: `lead`, unless there is an agent that leads."""
        leader = self.find(LEAD)
        return LEAD if leader is None or leader.status is Status.SHUTDOWN else USER

    def above(self, name: str) -> str:
        """Return who has to know how a member is, and to whom it reports.

        Of an agent that leads that is the person; of any other the lead or, where no agent leads
        this team, whoever has put it here from another one.
        """
        if name.lower() == LEAD:
            return USER
        member = self.find(name)
        if member is None or self.person != LEAD:
            return LEAD
        return member.spawned_by or LEAD

    def find(self, name: str) -> Member | None:
        """The member of that name, compared without case."""
        return next((m for m in self.members if m.name.lower() == name.lower()), None)

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
        former = self.find(member.name)
        if former is None:
            return replace(self, members=(*self.members, member))
        members = tuple(member if one is former else one for one in self.members)
        return replace(self, members=members)

    def with_new(self, name: str, **values: Any) -> Team:
        """The team with one more member, in the next colour."""
        agent_id, color = f"{name}@{self.name}", COLOURS[len(self.members) % len(COLOURS)]
        return self.with_member(Member(name=name, agent_id=agent_id, color=color, **values))

    def without(self, name: str) -> Team:
        """The team without the member of that name."""
        gone = self.find(name)
        return replace(self, members=tuple(one for one in self.members if one is not gone))

    def encode(self) -> bytes:
        """The content of `config.json`."""
        document = {
            "format": FORMAT,
            **self.extra,
            "team_name": self.name,
            "sandbox": self.sandbox,
            "members": [member.encode() for member in self.members],
        }
        return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


class Roster:
    """Reads and changes one team's `config.json`."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._name = str(paths.config)
        self._known: tuple[tuple[int, ...], Team] | None = None

    def read(self) -> Team:
        """The team as it is; an empty one where there is no roster yet.

        Raises:
            StoreError: it is damaged, or made by a newer version.
        """
        version = self.version()
        if self._known is not None and self._known[0] == version:
            return self._known[1]
        content = files.read(self._paths.config)
        team = Team() if content is None else self._decode(content)
        # What was changed just now may change again within one tick of the file system's clock.
        settled = version is not None and time.time_ns() - version[-1] > _SETTLED_NANOSECONDS
        self._known = (version, team) if settled and version is not None else None
        return team

    def version(self) -> tuple[int, ...] | None:
        """Differs whenever the file was replaced or changed; `None` where there is none."""
        try:
            now = os.lstat(self._name)
        except OSError:
            return None
        return (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)

    def update(self, change: Callable[[Team], Team]) -> Team:
        """Read, change and replace the roster under its lock; nothing is written for no change."""
        with locks.locked(self._paths.config_lock):
            before = files.read(self._paths.config)
            old = Team() if before is None else self._decode(before)
            if before is not None and (older := _format(before)) < FORMAT:
                files.replace(self._paths.config.with_suffix(f".format-{older}.json"), before)
            new = change(old)
            if before is None or new != old:
                files.replace(self._paths.config, new.encode())
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
        path = self._paths.config
        try:
            document = json.loads(content)
            self._check_format(document.pop("format", 0))  # before what a newer one may say anew
            name = document.pop("team_name", "default")
            sandbox = str(document.pop("sandbox", ""))
            if "members" not in document:
                raise ValueError("it lists no members")  # noqa: TRY301 -- told below
            members = tuple(Member.decode(m, team=name) for m in document.pop("members"))
            if len({member.name.lower() for member in members}) < len(members):
                raise ValueError("two members have one name")  # noqa: TRY301 -- told below
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedRoster(path, str(error)) from error
        return Team(name=name, members=members, sandbox=sandbox, extra=MappingProxyType(document))

    def _check_format(self, found: object) -> None:
        if not isinstance(found, int) or found > FORMAT:
            raise StoreError(
                f"{self._paths.config} has format {found}, this teamd knows up to {FORMAT}; "
                "use a newer teamd"
            )


def _format(content: bytes) -> int:
    return int(json.loads(content).get("format", 0))
