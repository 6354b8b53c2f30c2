"""The events that stand in logs: processes, crashes, retries, limits, permissions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from teamctl.events.event import Event
from teamctl.transcripts import logged_at

_KINDS: Final = {
    "spawned": "spawned",
    "begins": "process_began",
    "exited": "process_ended",
    "crashed": "crashed",
    "failed": "failed",
    "stuck": "stuck",
    "resumed": "resumed",
    "asked to shut down": "shutdown_asked",
    "shutdown rejected": "shutdown_rejected",
    "shutting down": "shutting_down",
    "limits raised": "limit_raised",
    "model call failed, trying again": "retry",
    "model calls slowed": "model_calls_slowed",
    "line rejected": "mail_rejected",
    "permission": "permission",
    "check begins": "check_began",
    "check ended": "check_ended",
    "reloaded": "reloaded",
    "ready": "teamd_started",
    "stopped": "teamd_stopped",
}
_OWN: Final = frozenset({"time", "level", "event", "who", "name", "traceback"})
_RESTARTED: Final = "restarted"  # a process that begins after a crash


class LogEvents:
    """Tells the events of all logs, line by line in the order of time."""

    def __init__(self) -> None:
        self._crashed: set[str] = set()

    def events(self, entry: dict[str, Any]) -> Iterator[Event]:
        """Yield what a line of a log tells, if that is anything for others."""
        kind = _KINDS.get(str(entry.get("event")))
        if kind is None:
            return
        name = str(entry.get("name") or entry.get("who"))
        facts = {key: value for key, value in entry.items() if key not in _OWN}
        if kind == "crashed":
            self._crashed.add(name)
        elif kind == "process_began" and name in self._crashed:
            self._crashed.discard(name)
            kind = _RESTARTED
        yield Event(logged_at(entry), kind, name, facts)
