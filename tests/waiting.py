"""Waiting for facts instead of seconds."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.1
_SHARE = 3  # a look that takes long, such as a command, is followed by so many times that


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
    """Look until the predicate holds; yield how long to rest before the next look."""
    begun = time.monotonic()
    deadline = begun + timeout_seconds
    while not predicate():
        looked = time.monotonic()
        assert looked < deadline, f"not within {timeout_seconds:g} s: {what}"
        yield min(max(_PAUSE_SECONDS, _SHARE * (looked - begun)), _LONGEST_PAUSE_SECONDS)
        begun = time.monotonic()
