"""A teammate's wakes: the bell that ends its rest, its heartbeat, and the model calls of a wake."""

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
    """Sends a heartbeat at fixed intervals, which shows the supervisor that its teammate is alive.

    It beats from within the event loop, so anything that blocks the loop stops the heartbeat: a
    signal, an endless computation, or a system call that does not return. Waits within the loop
    (for a silent model, or a command) do not stop it; they have time limits of their own.
    """

    vitals: Heartbeat
    every_seconds: float
    _next: asyncio.TimerHandle | None = None

    def beat(self) -> None:
        """Send a heartbeat now, and regularly from now on."""
        self.vitals.beat()
        self._stop()
        self._next = asyncio.get_running_loop().call_later(self.every_seconds, self.beat)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Send no heartbeats during the block: an idle teammate computes nothing."""
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
        pulse: the heartbeat, which rests during `wait`.
        recheck_seconds: how often to look for mail without a byte, since one may be lost.
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
        """Wait for a ring, or for this many seconds, or until the next look without a ring is due.

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
        """Wake up on changes in a folder as well, during the block."""
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
        """Forget the wake-ups so far; call it before looking for the mail that they announced."""
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

    The first look comes before any wait: an earlier ring went to the previous process.

    Args:
        bell: the descriptor, as for a `Wakeup`.
        heartbeat: told about the rest and its end.
        wanted: returns whether there is work; should be cheap.

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
    """A number of model calls, which a teammate and its foreground subagents take one by one.

    Attributes:
        most: the total number of calls.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = most

    def renew(self) -> None:
        """Begin a wake, with all calls available again."""
        self._left = self.most

    def take(self) -> bool:
        """Take one call from the budget; return whether one was left."""
        if not self._left:
            return False
        self._left -= 1
        return True
