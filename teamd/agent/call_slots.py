"""Model calls wait for slots, which the supervisor grants across the whole team."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from teamd.models import RefusedError
from teamd.team.slot_messages import ASK, BEGUN, LONGEST_WORD, SlotRelease


class CallSlots:
    """The slots of one teammate; its conversations share them, first come first served.

    It asks the supervisor for one slot at a time, so a teammate with many conversations has one
    place in the supervisor's queue.

    Args:
        fd: the teammate's end of the channel, non-blocking.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: deque[tuple[str, asyncio.Future[int]]] = deque()
        self._asked: str | None = None  # the prefix that the supervisor was asked for

    @asynccontextmanager
    async def hold(self, prefix: str = "") -> AsyncIterator[Callable[[], None]]:
        """Hold a slot during one call; yield a function to call when its reply begins.

        If the server refuses the call because there are too many, the release reports it. The
        supervisor then pauses all calls, and the next try waits for a slot again.

        Args:
            prefix: see `take`.
        """
        number = await self.take(prefix)
        release = SlotRelease(number=number)
        try:
            yield partial(self.report_begun, number)
            release = SlotRelease(number=number, served=True)
        except RefusedError as error:
            seconds = error.retry_after_seconds
            release = SlotRelease(number=number, refused=True, retry_after_seconds=seconds)
            raise
        finally:
            self.release(release)

    async def take(self, prefix: str = "") -> int:
        """Wait for a slot and return its number.

        Args:
            prefix: a digest of the beginning of the request, if the server caches that.

        Raises:
            ConnectionResetError: the supervisor has closed the channel.
        """
        slot: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((prefix, slot))
        self._ask()
        try:
            return await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():  # granted in the same moment
                self.release(SlotRelease(number=slot.result()))
            raise

    def release(self, slot: SlotRelease) -> None:
        self._send(slot.encode())

    def report_begun(self, number: int) -> None:
        """Report that a reply begins: its prefix is in the server's cache."""
        self._send(b"%s %d" % (BEGUN, number))

    def _ask(self) -> None:
        """Ask for a slot for the first request that waits, unless one was asked for already."""
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()  # cancelled
        if self._waiting and self._asked is None:
            self._asked = self._waiting[0][0]
            asyncio.get_running_loop().add_reader(self._fd, self._receive)
            self._send(b"%s %s" % (ASK, self._asked.encode()))

    def _receive(self) -> None:
        try:
            word = os.read(self._fd, LONGEST_WORD)
        except BlockingIOError:
            return
        except OSError:  # the supervisor has ended without reading all
            word = b""
        asyncio.get_running_loop().remove_reader(self._fd)
        asked, self._asked = self._asked, None
        if not word:
            self._fail_all()
            return
        waiting = [(prefix, slot) for prefix, slot in self._waiting if not slot.done()]
        if waiting and waiting[0][0] == asked:
            waiting[0][1].set_result(int(word))
        else:  # the request was cancelled, and the next one would warm another prefix
            self.release(SlotRelease(number=int(word)))
        self._ask()

    def _fail_all(self) -> None:
        """Fail all waiting calls: the process ends, and its successor gets a new channel."""
        why = "the supervisor grants no more slots for model calls"
        while self._waiting:
            _, slot = self._waiting.popleft()
            if not slot.done():
                slot.set_exception(ConnectionResetError(errno.ECONNRESET, why))

    def _send(self, word: bytes) -> None:
        with suppress(OSError):  # the supervisor has ended, and this process ends with it
            try:
                os.write(self._fd, word)
            except BlockingIOError:  # the supervisor has hundreds of datagrams to read
                os.set_blocking(self._fd, True)
                os.write(self._fd, word)
                os.set_blocking(self._fd, False)
