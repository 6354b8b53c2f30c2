"""The descriptors that this process has open, once nothing is left that only waits to be closed."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path


def count_descriptors() -> int:
    """Count them; what earlier tests have left in cycles is closed first, and not in between."""
    gc.collect()
    return len(list(Path("/dev/fd").iterdir()))


def opened_in(folder: Path) -> list[str]:
    """Return what this process has open of a folder, that itself with it.

    Whatever threads of earlier tests close meanwhile is elsewhere.
    """
    gc.collect()
    found = []
    for descriptor in Path("/dev/fd").iterdir():
        with suppress(OSError):  # that of this very look
            found.append(os.path.realpath(descriptor))
    return sorted(one for one in found if Path(one).is_relative_to(folder.resolve()))
