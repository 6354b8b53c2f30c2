"""The descriptors that this process has open, once nothing is left that only waits to be closed."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path


def opened() -> set[tuple[int, int, int]]:
    """Return each one as its number and its file's device and inode number.

    Compare with `opened() - before` and not by their number: threads of earlier tests may close
    what is theirs at any moment. What earlier tests have left in cycles is closed first.
    """
    gc.collect()
    found = set()
    for path in Path("/dev/fd").iterdir():
        with suppress(OSError):  # that of this very look
            status = os.fstat(int(path.name))
            found.add((int(path.name), status.st_dev, status.st_ino))
    return found
