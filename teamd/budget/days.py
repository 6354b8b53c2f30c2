"""The local days and months that limits count by: a day is `2026-11-22`, a month is `2026-11`."""

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


def month_of(day: str) -> str:
    """Return the month of a day."""
    return day[: len("2026-11")]


def day_after(period: str) -> str:
    """Return the first day after a day or a month."""
    if period == month_of(period):
        return (date.fromisoformat(f"{period}-28") + timedelta(days=4)).replace(day=1).isoformat()
    return (date.fromisoformat(period) + timedelta(days=1)).isoformat()


def end_of(period: str) -> float:
    """Return the end of a day or a month, in seconds since the epoch."""
    midnight = datetime.combine(date.fromisoformat(day_after(period)), clock_time())
    return midnight.astimezone().timestamp()
