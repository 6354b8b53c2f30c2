"""What a person sets in `team.toml`: each key is declared once, in `declared`."""

from __future__ import annotations

from teamd.settings.diff import changes
from teamd.settings.load import load, parse, read_file
from teamd.settings.schema import (
    Limits,
    Mail,
    Model,
    Price,
    Settings,
    Supervision,
    Team,
    Teammate,
    Tools,
)

__all__ = [
    "Limits",
    "Mail",
    "Model",
    "Price",
    "Settings",
    "Supervision",
    "Team",
    "Teammate",
    "Tools",
    "changes",
    "load",
    "parse",
    "read_file",
]
