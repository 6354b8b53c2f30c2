"""When a server takes requests again, as its headers or its message say."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

# A limit of a month may have just begun to count; a time beyond that is a mistake of the server.
LONGEST_SECONDS: Final = 35 * 86400.0
# "You will regain access on 2026-12-01 at 00:00 UTC." A time without a zone says nothing.
_REGAINED: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?: at |T| )(\d\d:\d\d)(:\d\d)?(?:\.\d+)? ?(?:UTC|GMT|Z)\b"
)
_RESET: Final = re.compile(r"(anthropic-ratelimit(?:-[a-z0-9]+)*|x-ratelimit)-reset")
_MILLISECONDS: Final = 1e11  # since the epoch; no such number of seconds is near
_SECONDS: Final = 1e9  # since the epoch; a smaller number counts from now


def find_wait_seconds(headers: Mapping[str, str], said: str) -> float | None:
    """Return how long the server asks to wait; `None`: it does not, or for over a month.

    Args:
        headers: of the response, by names in lower case. The server's own clock counts.
        said: its message.
    """
    now = _http_date(headers.get("date", "")) or time.time()
    moments = (
        _retry_after(headers, now),
        _regained(said),
        max(_resets(headers, now), default=None),
    )
    moment = next((one for one in moments if one is not None), None)
    if moment is None:
        return None
    seconds = max(0.0, moment - now)
    return seconds if seconds <= LONGEST_SECONDS else None


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    asked = headers.get("retry-after", "")
    with suppress(ValueError):
        return now + max(0.0, float(headers.get("retry-after-ms", "")) / 1000)
    with suppress(ValueError):
        return now + max(0.0, float(asked))
    return _http_date(asked)


def _regained(said: str) -> float | None:
    found = _REGAINED.search(said)
    if found is None:
        return None
    with suppress(ValueError):
        day, minute, second = found.groups(default="")
        return datetime.fromisoformat(f"{day}T{minute}{second}+00:00").timestamp()
    return None


def _resets(headers: Mapping[str, str], now: float) -> Iterator[float]:
    """Yield when each limit that is used up begins anew."""
    for name, value in headers.items():
        found = _RESET.fullmatch(name)
        if found is None:
            continue
        left, status = (headers.get(f"{found[1]}-{end}", "") for end in ("remaining", "status"))
        if left.strip() == "0" or status.strip() == "rejected":
            moment = _moment(value.strip(), now)
            if moment is not None:
                yield moment


def _moment(value: str, now: float) -> float | None:
    with suppress(ValueError):
        number = float(value)
        if number >= _MILLISECONDS:
            return number / 1000
        return number if number >= _SECONDS else now + number
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _http_date(value: str) -> float | None:
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        return parsedate_to_datetime(value).timestamp()
    return None
