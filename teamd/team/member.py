"""A member of a team: its entry in the roster, one line of the file.

Raw JSON of members exists only here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from teamd.messages import ALL, NAME, TEAMD, USER
from teamd.process_id import Identity
from teamd.team.states import Status

_KINDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("name", "agent_id", "role", "color"), str),
    **dict.fromkeys(("model", "effort", "reason", "remedy", "sandbox"), str | None),
    **dict.fromkeys(("spawned_by", "paused_by"), str | None),
    **dict.fromkeys(("turns", "input_tokens", "output_tokens", "restarts"), int),
    **dict.fromkeys(("started", "since", "until", "status_since"), int | float | None),
    "pid": int | None,
    **dict.fromkeys(("plan", "worktree"), bool),
}
_NO_MEMBERS: Final = frozenset({ALL, TEAMD, USER})
COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "red")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One teammate as the roster shows it.

    Attributes:
        pid: its process; `None` if it has none.
        started: when that process started, see `Identity`.
        since: when the member was started, in seconds since the epoch; it may have hibernated
            since.
        status_since: when its status last changed, in seconds since the epoch.
        restarts: how often its process was restarted after a crash, since the last spawn.
        turns: model calls so far.
        input_tokens: including cached ones.
        plan: whether it needs an approved plan before it acts.
        worktree: whether it works in a copy of its own.
        reason: why it is paused or failed, in a sentence.
        remedy: the command to continue, as the reason names it, without `--team`.
        sandbox: the sandbox of its commands, in a line.
        until: when the pause or failure ends automatically, in seconds since the epoch; `None` if
            unknown.
        paused_by: the name that paused it until a `resume`; `None` if it is not paused that way.
        spawned_by: the address of the agent in another team that spawned it, if any.
        extra: keys of other programs, unchanged.
    """

    name: str
    agent_id: str
    role: str
    status: Status
    pid: int | None = None
    started: float | None = None
    since: float | None = None
    status_since: float | None = None
    restarts: int = 0
    model: str | None = None
    effort: str | None = None
    color: str = COLOURS[0]
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    plan: bool = False
    worktree: bool = False
    reason: str | None = None
    remedy: str | None = None
    sandbox: str | None = None
    until: float | None = None
    paused_by: str | None = None
    spawned_by: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def process(self) -> Identity | None:
        """The process in the roster; it may have ended since."""
        if self.pid is None or self.started is None:
            return None
        return Identity(pid=self.pid, started=self.started)

    @property
    def pause(self) -> str | None:
        """Why it was paused on request, in a sentence; `None` if it was not."""
        if self.paused_by is None:
            return None
        who = "the person" if self.paused_by == USER else self.paused_by
        return f"paused by {who}; `teamctl resume {self.name}` resumes it"

    def encode(self) -> dict[str, Any]:
        """Return the member as stored in `config.json`."""
        own = {key: getattr(self, key) for key in _OWN_KEYS}
        return {**self.extra, **own, "status": str(self.status)}

    def encode_line(self) -> bytes:
        """Return the member's line of the file, without its newline."""
        return json.dumps(self.encode(), ensure_ascii=False).encode("utf-8", "replace")

    @classmethod
    def decode(cls, found: Mapping[str, Any], *, team: str) -> Member:
        """Read a member; keys other than the name may be missing, as in the oldest rosters."""
        rest = dict(found)
        for key, kind in _KINDS.items():
            if key in rest and not isinstance(rest[key], kind):
                raise TypeError(f"a member's {key!r} is {rest[key]!r}")
        name = rest["name"]
        if not NAME.fullmatch(name) or name.lower() in _NO_MEMBERS:  # names become parts of paths
            raise ValueError(f"a member's 'name' is {name!r}")
        own: dict[str, Any] = {"agent_id": f"{name}@{team}", "role": "", "status": Status.IDLE}
        own |= {key: rest.pop(key) for key in _OWN_KEYS if key in rest}
        own["status"] = Status(own["status"])
        return cls(**own, extra=MappingProxyType(rest))


_OWN_KEYS: Final = tuple(one.name for one in fields(Member) if one.name != "extra")
