"""Work that a person may break off: the turn ends, the teammate lives on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class BrokenOffError(Exception):
    """A person has broken off what was under way."""


class Breakable:
    """One piece of work at a time."""

    def __init__(self) -> None:
        self._doing: asyncio.Future[Any] | None = None
        self._broken = False

    def break_off(self) -> None:
        """Break off what is under way, if anything is."""
        if self._doing is not None:
            self._broken = True
            self._doing.cancel()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, and return what it returns.

        Raises:
            BrokenOffError: a person has broken it off. Whoever is cancelled itself as well, such
                as to end the process, is cancelled.
        """
        self._broken = False
        doing: asyncio.Future[T] = asyncio.ensure_future(work)
        self._doing = doing
        try:
            return await doing
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if self._broken and not (me and me.cancelling()):
                raise BrokenOffError from None
            raise
        finally:
            doing.cancel()  # whoever is cancelled itself leaves nothing running behind
            self._doing = None
