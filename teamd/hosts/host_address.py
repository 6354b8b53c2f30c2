"""The address of a teammate on another host: `bob@team@host`."""

from __future__ import annotations

from dataclasses import dataclass

from teamd.messages import NAME

_PARTS = 3


@dataclass(frozen=True, slots=True)
class HostAddress:
    """A member's name, its team and its host. Host names are in lower case."""

    name: str
    team: str
    host: str

    def __str__(self) -> str:
        return f"{self.name}@{self.team}@{self.host}"


def parse_address(text: str) -> HostAddress | None:
    """Parse `name@team@host`; `None` for any other text, such as `name@team`."""
    parts = text.split("@")
    if len(parts) != _PARTS or not all(map(NAME.fullmatch, parts)):
        return None
    name, team, host = parts
    return HostAddress(name, team, host.lower())


def is_far(sender: str) -> bool:
    """Return whether the sender of mail or a request is on another host."""
    return sender.count("@") == _PARTS - 1
