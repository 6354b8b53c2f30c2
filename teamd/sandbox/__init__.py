"""What a command of a teammate can reach: the walls around it, and whether they stand."""

from __future__ import annotations

from typing import Final

SANDBOXED: Final = "bubblewrap"  # so begins the line that says what stands around commands
