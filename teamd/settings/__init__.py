"""What a person sets in `team.toml`: each key is declared once, in `schema`."""

from __future__ import annotations

from teamd.settings.load import load, parse, read_file
from teamd.settings.schema import Settings, Teammate, changes

__all__ = ["Settings", "Teammate", "changes", "load", "parse", "read_file"]
