"""Schedule the postman's rounds: at once for local mail, soon after a frame, and when due.

Rounds run in callbacks of the loop, not in a task that awaits events. This saves some loop
iterations, a tenth of a message's whole latency on an idle machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NoReturn


@dataclass(slots=True)
class Rounds:
    """Calls a function repeatedly; create this in a running loop.

    Attributes:
        act: does a round; returns the seconds until the next one is due, or a coroutine to await
            before the next round.
        rest: called before a round that is due by time alone.
    """

    act: Callable[[], float | Coroutine[Any, Any, None]]
    rest: Callable[[], None]
    _ended: asyncio.Future[NoReturn] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    _next: asyncio.Handle | None = None  # a round is scheduled for the next loop iteration
    _pause: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _over: bool = False

    async def run(self, beside: asyncio.Task[NoReturn]) -> NoReturn:
        """Do rounds until one fails or the task `beside` fails; no round follows.

        Raises:
            Exception: the exception of the round or the task.
        """
        self.soon()
        try:
            await asyncio.wait([self._ended, beside], return_when=asyncio.FIRST_COMPLETED)
            ended: asyncio.Future[NoReturn] = beside if beside.done() else self._ended
            ended.result()
        finally:
            self._over = True

    def soon(self) -> None:
        """Do a round after the events that are already pending."""
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self.now)

    def now(self) -> None:
        """Do a round, unless the last one is still waiting."""
        self._act(self.act)

    def _be_due(self) -> None:
        self._act(self._rest_and_act)

    def _rest_and_act(self) -> float | Coroutine[Any, Any, None]:
        self.rest()
        return self.act()

    def _act(self, act: Callable[[], float | Coroutine[Any, Any, None]]) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._pause is not None or self._over:
            return
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        try:
            due = act()
        except Exception as error:  # noqa: BLE001 -- raised again by `run`
            self._end(error)
            return
        if not isinstance(due, float):
            self._pause = loop.create_task(due)
            self._pause.add_done_callback(self._go_on)
        elif due > 0:
            self._timer = loop.call_later(due, self._be_due)
        else:
            self.soon()

    def _go_on(self, pause: asyncio.Task[None]) -> None:
        self._pause = None
        if not pause.cancelled() and (error := pause.exception()) is not None:
            self._end(error)
        self.now()

    def _end(self, error: BaseException) -> None:
        if not self._over:
            self._over = True
            self._ended.set_exception(error)
