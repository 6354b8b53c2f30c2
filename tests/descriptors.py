"""The files that processes have open."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path


def opened() -> set[tuple[int, int, int]]:
    """Return what this process has open: each number with its file's device and inode number.

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


def links(pid: int) -> dict[str, Path]:
    """Return what another process has open: each number with what it points to."""
    found = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since the folder was listed
            found[fd.name] = fd.readlink()
    return found
