"""The slots for model calls: granted to teammates first come first served.

The supervisor grants them since it knows who has ended: a dead teammate's slots are free at once.
"""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from teamd.call_slots import ASK, BEGUN, LONGEST_WORD, OFFER, Returned
from teamd.journal import Journal
from teamd.supervisor.concurrency_limit import ConcurrencyLimit
from teamd.supervisor.warmth import Warmth


@dataclass(slots=True)
class _Channel:
    """The supervisor's end of a teammate's channel.

    Attributes:
        held: numbers of the slots that the teammate has.
        asks: whether it stands in the queue.
        prefix: what its next request begins with; empty where no server keeps that.
        refused: whether its last call was refused: it stands in front, it has waited before.
        has_asked: whether it has ever asked.
    """

    name: str
    fd: int
    held: set[int] = field(default_factory=set)
    asks: bool = False
    prefix: str = ""
    refused: bool = False
    has_asked: bool = False


class Slots:
    """Grants the slots of a team; it never waits for a teammate.

    A teammate stands in the queue once, however many conversations of its wait. So what one writes
    here, be it nonsense, is at most one wait for the others.
    """

    def __init__(self, limit: ConcurrencyLimit, journal: Journal) -> None:
        self._limit = limit
        self._journal = journal
        self._selector = selectors.DefaultSelector()
        self._channels: dict[str, _Channel] = {}
        self._queue: deque[_Channel] = deque()
        self._numbers = count()
        self._last = -1
        self._held = 0
        self._warmth = Warmth()

    def fileno(self) -> int:
        """Return a descriptor that is readable when a teammate says something."""
        found: int = self._selector.fileno()
        return found

    @property
    def descriptors(self) -> Iterator[int]:
        """The descriptors that a forked child must close."""
        yield self.fileno()
        yield from (channel.fd for channel in self._channels.values())

    def open(self, name: str, fd: int) -> None:
        """Serve a teammate over this end of its channel, from now on."""
        self.close(name)
        channel = _Channel(name, fd)
        self._channels[name] = channel
        self._selector.register(fd, selectors.EVENT_READ, channel)

    def close(self, name: str) -> None:
        """Forget a teammate that has ended; its slots are free."""
        channel = self._channels.pop(name, None)
        if channel is not None:
            self._selector.unregister(channel.fd)
            os.close(channel.fd)
            self._held -= len(channel.held)
            for number in channel.held:
                self._warmth.ended(number)
            if channel.asks:
                self._queue.remove(channel)
            self._grant_free()

    def serve(self) -> None:
        """Heed one word of each teammate that says something, and grant what is free."""
        for key, _ in self._selector.select(0):
            self._heed(key.data)
        self._grant_free()

    def offer(self, name: str) -> None:
        """Grant a slot to a teammate that is about to ask for one, if it would get one at once.

        It is for a request that begins as its last one did. Where none comes, it is given back.
        """
        channel = self._channels.get(name)
        if channel is None or not channel.has_asked or channel.asks or channel.held:
            return
        self._grant_free()  # a pause may have ended: who has waited comes first
        if self.pause_seconds or self._held >= self._limit.now:
            return
        if not self._warmth.cold_seconds(channel.prefix):
            self._grant(channel, b"%s %%d" % OFFER)

    @property
    def pause_seconds(self) -> float:
        """How long none is granted."""
        return self._limit.pause_seconds

    @property
    def next_due_seconds(self) -> float | None:
        """Return the seconds until slots may be granted again; `None` where nobody waits."""
        if not self._queue or self.pause_seconds:
            return self.pause_seconds if self._queue else None
        if self._held >= self._limit.now:
            return None
        return min(self._warmth.cold_seconds(channel.prefix) for channel in self._queue)

    def _grant_free(self) -> None:
        if self.pause_seconds:
            return
        ready = [one for one in self._queue if self._held < self._limit.now]
        for channel in ready:
            if self._held < self._limit.now and not self._warmth.cold_seconds(channel.prefix):
                self._queue.remove(channel)
                self._grant(channel)

    def _heed(self, channel: _Channel) -> None:
        try:
            word = os.read(channel.fd, LONGEST_WORD)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if not word:  # it has ended, and is reaped in a moment
            self.close(channel.name)
            return
        try:
            kind, _, said = word.partition(b" ")
            if kind == ASK:
                self._enqueue(channel, said.decode("ascii"))
            elif kind == BEGUN:
                self._warmth.begun(int(said))
            else:
                self._take_back(channel, Returned.decode(word))
        except ValueError:  # no more of this: it could go on for ever
            self._journal.warn("nonsense about slots", name=channel.name, word=repr(word))
            self.close(channel.name)

    def _enqueue(self, channel: _Channel, prefix: str) -> None:
        if channel.asks:
            return
        channel.asks, channel.prefix, channel.has_asked = True, prefix, True
        if channel.refused:
            self._queue.appendleft(channel)
        else:
            self._queue.append(channel)

    def _take_back(self, channel: _Channel, returned: Returned) -> None:
        if returned.number not in channel.held:
            raise ValueError(f"{channel.name} has no slot {returned.number}")
        channel.held.remove(returned.number)
        self._warmth.ended(returned.number)
        self._held -= 1
        if returned.served:
            self._limit.served()
        if returned.refused:
            channel.refused = True
            before, seconds = self._limit.now, returned.retry_after_seconds
            self._limit.refused(returned.number, seconds, last=self._last, under_way=self._held)
            self._note(before)

    def _note(self, before: int) -> None:
        seconds = round(self._limit.pause_seconds, 1)
        if self._limit.now != before or seconds:
            self._journal.note("model calls slowed", at_once=self._limit.now, pause=seconds)

    def _grant(self, channel: _Channel, word: bytes = b"%d") -> None:
        channel.asks = channel.refused = False
        number = next(self._numbers)
        with suppress(OSError):  # it has ended, or reads nothing: it gets none
            os.write(channel.fd, word % number)
            channel.held.add(number)
            self._warmth.granted(number, channel.prefix)
            self._held += 1
            self._last = number
