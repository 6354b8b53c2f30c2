"""Make sleeps relative, since libfaketime answers absolute ones with EINVAL.

Python sleeps with `clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME)`, so each of its sleeps would
fail under libfaketime 0.9.10, for example when two processes want the same lock.
"""

from __future__ import annotations

import select
import time
from typing import Any


def sleep(seconds: Any, /) -> None:
    """Sleep like `time.sleep`, with another system call."""
    select.select([], [], [], seconds)


time.sleep = sleep
