"""The events of a team, as `teamctl events` and `chat` show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any


class EventKind(StrEnum):
    """The kinds of events; `teamctl help files` lists the facts of each."""

    # From conversations and inboxes:
    MAIL_SENT = auto()
    MAIL_TAKEN = auto()
    MAIL_DELIVERED = auto()
    MAIL_HELD = auto()
    TURN_BEGAN = auto()
    TURN_ENDED = auto()
    REPLIED = auto()
    TOOL_BEGAN = auto()
    TOOL_ENDED = auto()
    CONVERSATION_OPENED = auto()
    SUMMARISED = auto()
    # From the roster, the board, the merge queue and the approvals:
    STATE = auto()
    TASK = auto()
    MERGE = auto()
    APPROVAL_ASKED = auto()
    APPROVAL_ANSWERED = auto()
    # From logs; all but the last have the names of `LoggedEvent`:
    SPAWNED = auto()
    PROCESS_BEGAN = auto()
    PROCESS_ENDED = auto()
    CRASHED = auto()
    FAILED = auto()
    STUCK = auto()
    RESUMED = auto()
    SHUTDOWN_ASKED = auto()
    SHUTDOWN_REJECTED = auto()
    SHUTTING_DOWN = auto()
    LIMIT_RAISED = auto()
    RETRY = auto()
    MODEL_CALLS_SLOWED = auto()
    MAIL_REJECTED = auto()
    PERMISSION = auto()
    CHECK_BEGAN = auto()
    CHECK_ENDED = auto()
    RELOADED = auto()
    TEAMD_STARTED = auto()
    TEAMD_STOPPED = auto()
    RESTARTED = auto()  # a process that begins after a crash


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a team.

    Attributes:
        time: seconds since the epoch.
        name: its subject: a teammate, `user` or `teamd`.
        facts: further keys of `--json`, which depend on the kind alone.
    """

    time: float
    kind: EventKind
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the event as `--json` shows it."""
        return {"time": self.time, "kind": self.kind, "name": self.name, **self.facts}
