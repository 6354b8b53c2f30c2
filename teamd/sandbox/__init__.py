"""The sandbox around the commands of a teammate."""

from __future__ import annotations

from typing import Final

SANDBOXED: Final = "bubblewrap"  # the first word of the line that describes the sandbox
