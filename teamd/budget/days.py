"""The days that limits count by: local ones, as the machine's clock and time zone have them."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta
from datetime import time as clock_time


def today() -> str:
    """Return the local day of this moment, such as `2026-11-22`."""
    return day_of(time.time())


def day_of(moment: float) -> str:
    """Return the local day of a moment in seconds since the epoch."""
    return datetime.fromtimestamp(moment).astimezone().date().isoformat()


def day_after(day: str) -> str:
    """Return the next day."""
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


def end_of(day: str) -> float:
    """Return when a day ends, in seconds since the epoch."""
    midnight = datetime.combine(date.fromisoformat(day_after(day)), clock_time())
    return midnight.astimezone().timestamp()
