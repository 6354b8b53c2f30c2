"""Sleeps for so long instead of until a moment, which libfaketime answers with EINVAL.

Python sleeps by `clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME)`, so each of its sleeps would fail
under libfaketime 0.9.10, as where two processes want the same lock.
"""

from __future__ import annotations

import select
import time
from typing import Any


def sleep(seconds: Any, /) -> None:
    """Sleep like `time.sleep`, with another system call."""
    select.select([], [], [], seconds)


time.sleep = sleep
