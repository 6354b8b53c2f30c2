"""A teammate's pulse: signs of life while it works, none while it rests.

It beats from within the event loop: whatever keeps that from turning stops the pulse, be it a
signal, a computation without end or a system call that does not return. What a teammate waits for
within the loop (a model's silence, a command) has a time limit of its own and may take it.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.heartbeat import Heartbeat


class Pulse:
    """Beats every so many seconds.

    Args:
        vitals: where the supervisor looks.
    """

    def __init__(self, vitals: Heartbeat, *, every_seconds: float) -> None:
        self._vitals = vitals
        self._every_seconds = every_seconds
        self._next: asyncio.TimerHandle | None = None

    def beat(self) -> None:
        """Show life now, and again and again from now on."""
        self._vitals.beat()
        self._stop()
        self._next = asyncio.get_running_loop().call_later(self._every_seconds, self.beat)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Be silent for the length of a block: an idle teammate computes nothing."""
        self._stop()
        self._vitals.rest()
        try:
            yield
        finally:
            self.beat()

    def _stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
