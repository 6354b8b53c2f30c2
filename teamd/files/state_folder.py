"""The folder of the person's where state stands that belongs to no team directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "XDG_STATE_HOME"


def state_folder() -> Path:
    """Return the folder; it need not be there. See the XDG Base Directory Specification."""
    named = os.environ.get(VARIABLE, "")
    state = Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"
    return state / "teamd"
