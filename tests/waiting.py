"""Waiting for facts instead of seconds."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAUSE_SECONDS = 0.01


def wait_until(
    predicate: Callable[[], object], *, timeout_seconds: float = 20, what: str = "the fact"
) -> None:
    """Return once the predicate holds.

    Raises:
        AssertionError: it did not in time.
    """
    for _ in _looks(predicate, timeout_seconds, what):
        time.sleep(_PAUSE_SECONDS)


async def until(
    predicate: Callable[[], object], *, timeout_seconds: float = 20, what: str = "the fact"
) -> None:
    """Do the same and let the loop run meanwhile."""
    for _ in _looks(predicate, timeout_seconds, what):
        await asyncio.sleep(_PAUSE_SECONDS)


def _looks(predicate: Callable[[], object], timeout_seconds: float, what: str) -> Iterator[None]:
    deadline = time.monotonic() + timeout_seconds
    while not predicate():
        assert time.monotonic() < deadline, f"not within {timeout_seconds:g} s: {what}"
        yield
