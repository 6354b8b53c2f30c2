"""The wake-up of an idle teammate: a byte in a pipe that its supervisor writes when mail comes."""

from __future__ import annotations

import asyncio
import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from teamd.agent.pulse import Pulse


class SupervisorGone(Exception):
    """The other end of the pipe has closed: nobody supervises this process any more."""


class Wakeup:
    """The reading end of the pipe.

    Args:
        fd: non-blocking.
        pulse: rests while one waits here.
        recheck_seconds: a byte may be lost; look for mail now and then without one.
    """

    def __init__(self, fd: int, *, pulse: Pulse, recheck_seconds: float) -> None:
        self._fd = fd
        self._pulse = pulse
        self._recheck_seconds = recheck_seconds
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Wake this very process from within, such as for a job that has ended."""
        self._woken.set()

    async def wait(self, seconds: float = math.inf) -> None:
        """Wait to be woken, or for so long, or until it is time to look without that.

        Raises:
            SupervisorGone: nobody is left who could wake it.
        """
        loop = asyncio.get_running_loop()
        loop.add_reader(self._fd, self._woken.set)
        try:
            with suppress(TimeoutError), self._pulse.resting():
                async with asyncio.timeout(min(seconds, self._recheck_seconds)):
                    await self._woken.wait()
        finally:
            loop.remove_reader(self._fd)
        self.reset()

    def reset(self) -> None:
        """Forget the wake-ups so far; call it before looking for the mail that they told of."""
        self._woken.clear()
        with suppress(BlockingIOError):
            while True:
                if not os.read(self._fd, 4096):
                    raise SupervisorGone
