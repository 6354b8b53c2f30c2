"""The settings in `team.toml`; `schema` declares each key once."""

from __future__ import annotations

from teamd.settings.load import parse, read_file
from teamd.settings.loaded_settings import Reading, load, read
from teamd.settings.schema import Settings, Teammate

__all__ = ["Reading", "Settings", "Teammate", "load", "parse", "read", "read_file"]
