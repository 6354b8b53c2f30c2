"""Moments as a person names them: `10m` ago, `17:05` today, or a date."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

import click

_AGO: Final = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_CLOCK: Final = re.compile(r"\d\d:\d\d(:\d\d)?")
SINCE_HELP: Final = (
    "Only what happened since then: `10m` (`s`, `m`, `h`, `d`, `w`), a time, a date."
)


def parse_when(text: str, now: float | None = None) -> float:
    """Return the moment that a text names, in seconds since the epoch.

    Args:
        text: a time that long ago, an hour and minute of today, or a date as in ISO 8601, in the
            reader's time zone where it names none.
        now: by default the present.

    Raises:
        click.UsageError: it names none.
    """
    now = time.time() if now is None else now
    if ago := _AGO.fullmatch(text):
        return now - int(ago[1]) * _SECONDS[ago[2]]
    if _CLOCK.fullmatch(text):
        today = datetime.fromtimestamp(now, UTC).astimezone().date()
        text = f"{today.isoformat()}T{text}"
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError) as error:
        what = f"--since {text!r} is no time"
        raise click.UsageError(
            f"{what}; give 10m, 2h, 3d, 17:05, 2026-03-24 or 2026-03-24T17:05"
        ) from error
