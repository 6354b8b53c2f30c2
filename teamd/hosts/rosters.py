"""The members of other hosts, as those hosts report them, and the JSON of these rosters.

Each host owns its members. Its reports are only displayed; no decision depends on them. A silent
host does not make its members fail or restart.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from teamd.errors import NotAMessage, StoreError
from teamd.files import files
from teamd.messages import NAME, is_moment, parse_object
from teamd.team.roster import Team
from teamd.team.states import Status

MOST: Final = 1000  # members that a host reports
_LONGEST_ROLE: Final = 200  # characters
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class FarMember:
    """A member of another host, or of this one as reported to others.

    Attributes:
        since: when its status last changed, by the reader's clock; `None` if unknown.
    """

    name: str
    role: str
    status: Status
    since: float | None = None

    def encode(self, now: float) -> dict[str, Any]:
        """Return the member with an age, which does not depend on a clock."""
        age = None if self.since is None else round(max(0.0, now - self.since), 1)
        return {"name": self.name, "role": self.role, "status": str(self.status), "age": age}

    @classmethod
    def decode(cls, found: dict[str, Any], now: float) -> FarMember:
        """Decode an untrusted member.

        Raises:
            ValueError, KeyError, TypeError: it is invalid.
        """
        name, role, age = found["name"], found["role"], found.get("age")
        if not NAME.fullmatch(name) or not isinstance(role, str):
            raise ValueError(name)
        since = now - age if is_moment(age) and age <= now else None
        status = Status(found["status"])
        return cls(name=name, role=role[:_LONGEST_ROLE], status=status, since=since)


@dataclass(frozen=True, kw_only=True)
class FarRoster:
    """The members of one host.

    Attributes:
        team: the name of the team on that host.
        left_out: the number of members that are not listed.
    """

    team: str
    members: tuple[FarMember, ...] = ()
    left_out: int = 0

    @classmethod
    def of(cls, team: Team) -> FarRoster:
        """Return the roster that other hosts get of a team."""
        members = tuple(
            FarMember(
                name=one.name,
                role=one.role[:_LONGEST_ROLE],
                status=one.status,
                since=one.status_since,
            )
            for one in team.members[:MOST]
        )
        left_out = max(0, len(team.members) - MOST)
        return cls(team=team.name, members=members, left_out=left_out)

    def find(self, name: str) -> FarMember | None:
        """Return the member of that name, ignoring case."""
        return next((one for one in self.members if one.name.lower() == name.lower()), None)

    def encode(self, now: float) -> dict[str, Any]:
        """Return the roster for other hosts, with ages in place of times."""
        members = [member.encode(now) for member in self.members]
        return {"team": self.team, "members": members, "left_out": self.left_out}

    @classmethod
    def decode(cls, found: dict[str, Any], now: float) -> FarRoster:
        """Decode another host's roster.

        Args:
            found: its JSON.
            now: seconds since the epoch by this host's clock; the other host's clock is not used.

        Raises:
            NotAMessage: it is not a roster.
        """
        try:
            team, left_out = found["team"], found.get("left_out", 0)
            members = tuple(FarMember.decode(one, now) for one in found["members"][:MOST])
            if not NAME.fullmatch(team) or not isinstance(left_out, int):
                raise NotAMessage("a roster must name its team and count its members")
        except _DAMAGED as error:
            raise NotAMessage("it is no roster") from error
        return cls(team=team, members=members, left_out=max(0, left_out))


def encode(roster: FarRoster) -> bytes:
    """Return a roster for other hosts."""
    found = roster.encode(time.time())
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")


def keep(path: Path, roster: FarRoster) -> None:
    """Write a roster for display; it replaces the former one."""
    now = time.time()
    document = {"heard": now, **roster.encode(now)}
    content = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    files.replace(path, content, durable=False)


def read(path: Path) -> FarRoster | None:
    """Return a stored roster; `None` if it is missing or invalid."""
    try:
        content = files.read(path)
        if content is None:
            return None
        found = parse_object(content)
        heard = found.get("heard")
        return FarRoster.decode(found, heard if is_moment(heard) else time.time())
    except (NotAMessage, StoreError):  # only for display, and the next one comes within seconds
        return None
