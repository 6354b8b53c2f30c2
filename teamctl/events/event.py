"""What has happened: one event, for a person and for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from teamctl.render import output
from teamd.command_line import terminal

_TROUBLE = frozenset({"crashed", "failed", "stuck", "mail_rejected"})
_LONGEST_KIND = len("conversation_opened")
_USUAL_NAME = 8  # characters; nobody knows yet who comes
_CARE = frozenset({"retry", "approval_asked", "mail_held"})


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        time: seconds since the epoch.
        kind: `mail_sent`, `tool_ended`, …; see `teamctl help files`.
        name: whom it is about: a teammate, `user` or `teamd`.
        facts: what else is known, by keys that depend on the kind alone.
    """

    time: float
    kind: str
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the event as `--json` shows it."""
        return {"time": self.time, "kind": self.kind, "name": self.name, **self.facts}

    def line(self) -> str:
        """Return the event as a person reads it."""
        colour = "red" if self.kind in _TROUBLE else "yellow" if self.kind in _CARE else None
        facts = " ".join(f"{key}={_said(value)}" for key, value in self.facts.items() if value)
        when = terminal.style(output.moment(self.time), dim=True)
        kind = terminal.style(f"{self.kind:{_LONGEST_KIND}}", fg=colour, bold=True)
        name = f"{output.plain(self.name):{_USUAL_NAME}}"
        return f"{when} {kind} {name} {output.plain(facts)}".rstrip()


def _said(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    short = " ".join(text.split())
    return json.dumps(short, ensure_ascii=False) if " " in short else short
