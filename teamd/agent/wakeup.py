"""A teammate's wakes: the bell that ends its rest, its pulse and its model calls until the next."""

from __future__ import annotations

import asyncio
import math
import os
import select
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from teamd.files.watch import SLOW_SECONDS, watch
from teamd.team.heartbeat import Heartbeat


@dataclass(slots=True)
class HeartbeatSender:
    """Beats every so many seconds, which shows the supervisor that its teammate lives.

    It beats from within the event loop: whatever keeps that from turning stops the pulse, be it a
    signal, a computation without end or a system call that does not return. What a teammate waits
    for within the loop (a model's silence, a command) has a time limit of its own and may take it.
    """

    vitals: Heartbeat
    every_seconds: float
    _next: asyncio.TimerHandle | None = None

    def beat(self) -> None:
        """Show life now, and again and again from now on."""
        self.vitals.beat()
        self._stop()
        self._next = asyncio.get_running_loop().call_later(self.every_seconds, self.beat)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Be silent for the length of a block: an idle teammate computes nothing."""
        self._stop()
        self.vitals.rest()
        try:
            yield
        finally:
            self.beat()

    def _stop(self) -> None:
        if self._next is not None:
            self._next.cancel()


class SupervisorGone(Exception):
    """The other end of the pipe has closed: the supervisor has ended."""


class Wakeup:
    """The reading end of a pipe, into which the supervisor writes a byte when mail comes.

    Args:
        fd: non-blocking.
        pulse: rests while one waits here.
        recheck_seconds: a byte may be lost; look for mail now and then without one.
    """

    def __init__(self, fd: int, *, pulse: HeartbeatSender, recheck_seconds: float) -> None:
        self._fd = fd
        self._pulse = pulse
        self._recheck_seconds = recheck_seconds
        self._woken = asyncio.Event()
        self._listens = False
        self._gone = False

    def wake(self) -> None:
        """Wake this very process from within, such as for a job that has ended."""
        self._woken.set()

    async def wait(self, seconds: float = math.inf) -> None:
        """Wait for a ring, or for so many seconds, or until the next look without a ring is due.

        Raises:
            SupervisorGone: no process can ring any longer.
        """
        if not self._listens:  # once: to begin and to end that takes as long as a look
            asyncio.get_running_loop().add_reader(self._fd, self._hear)
            self._listens = True
        with suppress(TimeoutError), self._pulse.resting():
            async with asyncio.timeout(min(seconds, self._recheck_seconds)):
                await self._woken.wait()
        self.reset()

    @contextmanager
    def watching(self, folder: Path) -> Iterator[None]:
        """Wake up on changes in a folder as well, for the length of a block."""
        loop, recheck_seconds = asyncio.get_running_loop(), self._recheck_seconds
        with closing(watch(folder)) as changes:

            def note() -> None:
                changes.changed()
                self._woken.set()

            loop.add_reader(changes.fileno(), note)
            self._recheck_seconds = min(recheck_seconds, changes.recheck_seconds)
            try:
                yield
            finally:
                self._recheck_seconds = recheck_seconds
                loop.remove_reader(changes.fileno())

    def reset(self) -> None:
        """Forget the wake-ups so far; call it before looking for the mail that they told of."""
        self._woken.clear()
        if not self._listens:
            _empty(self._fd)
        if self._gone:
            raise SupervisorGone

    def _hear(self) -> None:
        try:
            _empty(self._fd)
        except SupervisorGone:
            self._gone = True
            asyncio.get_running_loop().remove_reader(self._fd)
        self._woken.set()


def hibernate(bell: int, heartbeat: Heartbeat, wanted: Callable[[], bool]) -> None:
    """Wait until there is work, without the memory of an event loop.

    The first look comes before any wait: an earlier ring went to the process before.

    Args:
        bell: as that of a `Wakeup`.
        heartbeat: shows each look.
        wanted: looks for work, as cheaply as it can.

    Raises:
        SupervisorGone: no process can ring any longer.
    """
    ringing = select.poll()  # takes descriptors of any number
    ringing.register(bell, select.POLLIN)
    while True:
        _empty(bell)
        if wanted():
            heartbeat.beat()
            return
        heartbeat.rest()
        ringing.poll(SLOW_SECONDS * 1000)


def _empty(bell: int) -> None:
    with suppress(BlockingIOError):
        while True:
            if not os.read(bell, 4096):
                raise SupervisorGone


class CallBudget:
    """So many model calls, taken one by one, by a teammate and its foreground subagents alike.

    Attributes:
        most: how many there are.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = most

    def renew(self) -> None:
        """Begin a wake: all of them are left."""
        self._left = self.most

    def take(self) -> bool:
        """Take one for the call that comes next; return whether there was one."""
        if not self._left:
            return False
        self._left -= 1
        return True
