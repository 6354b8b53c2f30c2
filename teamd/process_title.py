"""The title of a process: its name and command line in ps(1), top(1) and pgrep(1). Linux only."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

_PR_SET_NAME: Final = 15  # of prctl(2), which keeps 15 bytes
_FIRST_FIELD: Final = 3  # of /proc/PID/stat after the name, see proc(5)
_ARGUMENTS: Final = 48  # the first address of the arguments; the next field is their end


def set_title(title: str) -> None:
    """Show a title in place of this process's name and command line.

    It is cut if the command line has fewer characters. The environment stays as it is.
    """
    if sys.platform != "linux":
        return
    words = os.fsencode(title)
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    first, end = map(int, fields[_ARGUMENTS - _FIRST_FIELD :][:2])
    if 0 < first < end:  # zero where the kernel hides them
        ctypes.memmove(first, words[: end - first - 1].ljust(end - first, b"\0"), end - first)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, words, 0, 0, 0)
