"""The throttle: model calls wait for slots, which the supervisor grants over the whole team."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from teamd.models import Ask, Model, RefusedError, Reply
from teamd.models.encoding import prefix_of
from teamd.team.call_slots import ASK, BEGUN, LONGEST_WORD, OFFER, SlotRelease


class CallSlots:
    """The slots of one teammate, whose conversations share them; the first to ask is the first.

    The supervisor is asked for one slot at a time, so that a teammate with many conversations is
    no more than one in its queue.

    Args:
        fd: the teammate's end of the channel, non-blocking.
        resting: whether the teammate waits for mail: what is offered meanwhile is kept for that.
    """

    def __init__(self, fd: int, resting: Callable[[], bool] = lambda: False) -> None:
        self._fd = fd
        self._resting = resting
        self._listens = False
        self._waiting: deque[tuple[str, asyncio.Future[int]]] = deque()
        self._asked: str | None = None  # what the request begins with that a slot was asked for
        self._ahead = False  # whether that was asked for when no request was there
        self._asked_last = ""  # the same of the last question: an offer is for one that begins so
        self._offered: int | None = None  # the number of a slot that was offered
        self._last: str | None = None  # what the last request began with
        self._others: set[int] = set()  # slots that went to another request, as that was cancelled

    def ask_ahead(self) -> None:
        """Ask for a slot for a request that is about to come, and begins as the last one did.

        Where none comes, or one that begins otherwise, the slot is given back.
        """
        if self._last is not None and self._offered is None:
            self._ask(self._last, ahead=True)

    def decline(self) -> None:
        """Give back what was offered and is not needed now; call it before whatever takes long."""
        if self._offered is not None:
            number, self._offered = self._offered, None
            self.give_back(SlotRelease(number=number))

    async def take(self, prefix: str = "") -> int:
        """Wait for a slot; return its number.

        Args:
            prefix: names what the request begins with, where the server keeps that in a cache.

        Raises:
            ConnectionResetError: none is granted any more.
        """
        slot: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((prefix, slot))
        self._last = prefix
        self._ask_for_first()
        try:
            return await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():  # granted in the same moment
                self.give_back(SlotRelease(number=slot.result()))
            raise

    def give_back(self, returned: SlotRelease) -> None:
        """Give a slot back."""
        self._others.discard(returned.number)
        self._say(returned.encode())

    def begun(self, number: int) -> None:
        """Say that a reply begins, to a request that begins as that which was asked for."""
        if number not in self._others:
            self._say(b"%s %d" % (BEGUN, number))

    def _ask_for_first(self) -> None:
        if self._waiting and self._offered is not None:
            number, self._offered = self._offered, None
            self._hand_over(number, self._asked_last, ahead=True)
        elif self._waiting:
            self._ask(self._waiting[0][0])

    def _ask(self, prefix: str, *, ahead: bool = False) -> None:
        if self._asked is None:
            self._asked, self._asked_last, self._ahead = prefix, prefix, ahead
            if not self._listens:  # from now on: what is offered comes unasked
                asyncio.get_running_loop().add_reader(self._fd, self._hear)
                self._listens = True
            self._say(b"%s %s" % (ASK, self._asked.encode()))

    def _hear(self) -> None:
        try:
            word = os.read(self._fd, LONGEST_WORD)
        except BlockingIOError:
            return
        except OSError:  # it has gone with words of ours unread
            word = b""
        if not word:
            self._give_up()
            return
        kind, _, offered = word.rpartition(b" ")
        if kind == OFFER:
            self._keep(int(offered))
        else:
            asked, self._asked = self._asked or "", None
            self._hand_over(int(word), asked, ahead=self._ahead)

    def _keep(self, number: int) -> None:
        """Keep an offer for the mail that comes with it, unless this one is at work by now."""
        if self._resting() and self._asked is None and self._offered is None:
            self._offered = number
        else:
            self.give_back(SlotRelease(number=number))

    def _hand_over(self, number: int, asked: str, *, ahead: bool) -> None:
        """Give a slot to whoever waits first, if it is one for that."""
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()  # cancelled: nobody waits for it
        if not self._waiting or (ahead and self._waiting[0][0] != asked):
            self.give_back(SlotRelease(number=number))
        else:
            prefix, slot = self._waiting.popleft()
            if prefix != asked:
                self._others.add(number)
            slot.set_result(number)
        self._ask_for_first()

    def _give_up(self) -> None:
        """Fail those who wait, so that this process ends, and the next one has another channel."""
        asyncio.get_running_loop().remove_reader(self._fd)
        self._asked, self._offered, self._listens = None, None, False
        while self._waiting:
            _, slot = self._waiting.popleft()
            if not slot.done():
                why = "the supervisor grants no more slots for model calls"
                slot.set_exception(ConnectionResetError(errno.ECONNRESET, why))

    def _say(self, word: bytes) -> None:
        with suppress(OSError):  # the supervisor has gone, and ends this process as well
            try:
                os.write(self._fd, word)
            except BlockingIOError:  # it has hundreds of words to read
                os.set_blocking(self._fd, True)
                os.write(self._fd, word)
                os.set_blocking(self._fd, False)


class Throttle:
    """A model that waits until one of the team's slots is free.

    Where the server refuses for too many calls, the slot's return says so: the supervisor then
    waits for all, and whoever asks again waits for its slot.

    Args:
        model: is asked.
        slots: of the teammate.
        caches: whether the server keeps what requests begin with.
    """

    def __init__(self, model: Model, slots: CallSlots, *, caches: bool = False) -> None:
        self._model = model
        self._slots = slots
        self._caches = caches

    async def reply(self, ask: Ask) -> Reply:
        """Answer once a slot is free; a failure or cancellation gives it back."""
        number = await self._slots.take(prefix_of(ask) if self._caches else "")
        returned = SlotRelease(number=number)
        try:
            begun = partial(self._slots.begun, number)
            reply = await self._model.reply(replace(ask, begun=begun))
            returned = SlotRelease(number=number, served=True)
        except RefusedError as error:
            seconds = error.retry_after_seconds
            returned = SlotRelease(number=number, refused=True, retry_after_seconds=seconds)
            raise
        finally:
            self._slots.give_back(returned)
        return reply
