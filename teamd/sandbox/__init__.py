"""The sandbox around the commands of a teammate."""

from __future__ import annotations

from typing import Final

GIT: Final = ".git"
WITHOUT: Final = frozenset({"external", "off"})  # settings that do not use bubblewrap
SANDBOXED: Final = "bubblewrap"  # the first word of the line that describes the sandbox
