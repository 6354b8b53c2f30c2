"""What a person sets in `team.toml`: each key is declared once, in `declared`."""

from __future__ import annotations

from teamd.settings.comparing import changes
from teamd.settings.declared import (
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
from teamd.settings.reading import load, parse, read_file

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
