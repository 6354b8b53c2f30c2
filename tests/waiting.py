"""Waiting for facts instead of seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.1
_PAUSES_PER_LOOK = 3  # a dear look, such as a command or all of /proc, is not taken all the time


def wait_until(
    predicate: Callable[[], object], *, timeout_seconds: float = 20, what: str = "the fact"
) -> None:
    """Return once the predicate holds.

    Raises:
        AssertionError: it did not in time.
    """
    for pause in _looks(predicate, timeout_seconds, what):
        time.sleep(pause)


async def until(
    predicate: Callable[[], object], *, timeout_seconds: float = 20, what: str = "the fact"
) -> None:
    """Do the same and let the loop run meanwhile."""
    for pause in _looks(predicate, timeout_seconds, what):
        await asyncio.sleep(pause)


def _looks(predicate: Callable[[], object], timeout_seconds: float, what: str) -> Iterator[float]:
    """Look until it holds; yield how long to wait before the next look."""
    begun = time.monotonic()
    deadline = begun + timeout_seconds
    while not predicate():
        now = time.monotonic()
        assert now < deadline, f"not within {timeout_seconds:g} s: {what}"
        yield min(max(_PAUSE_SECONDS, _PAUSES_PER_LOOK * (now - begun)), _LONGEST_PAUSE_SECONDS)
        begun = time.monotonic()
