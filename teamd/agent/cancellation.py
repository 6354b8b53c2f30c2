"""Cancellation of a turn by a person: the turn ends, the teammate lives on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class TurnCancelled(Exception):
    """A person has cancelled what was under way."""


class Cancellation:
    """Runs one piece of work at a time, until a person cancels it."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel what is under way, if anything is."""
        if self._running is not None:
            self._cancelled = True
            self._running.cancel()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, and return what it returns.

        Raises:
            TurnCancelled: a person has cancelled it. A caller that is cancelled itself as well,
                such as to end the process, gets its own cancellation.
        """
        self._cancelled = False
        running: asyncio.Future[T] = asyncio.ensure_future(work)
        self._running = running
        try:
            return await running
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if self._cancelled and not (me and me.cancelling()):
                raise TurnCancelled from None
            raise
        finally:
            running.cancel()  # a caller that is cancelled itself leaves nothing running behind
            self._running = None
