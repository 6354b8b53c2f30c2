"""The slots for model calls: granted to teammates first come first served.

The supervisor grants them since it knows who has ended: a dead teammate's slots are free at once.
"""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from teamd.clocks import Deadline
from teamd.journal import Journal, LoggedEvent
from teamd.models.retry import RetryPolicy
from teamd.team.call_slots import ASK, BEGUN, LONGEST_WORD, OFFER, SlotRelease

_LEAST_STEP: Final = 1 / 16


@dataclass(slots=True)
class ConcurrencyLimit:
    """The number of calls that may be under way, and how long none may begin.

    Attributes:
        most: returns how many the settings allow.
        policy: returns how long to wait where the server refuses.
    """

    most: Callable[[], int]
    policy: Callable[[], RetryPolicy]
    _limit: float = 1e9
    _step: float = 1.0  # of the way to one more slot, for as many replies as there are slots
    _grown: bool = False  # since the last refusal
    _refusals: int = 0  # in a row
    _last: int = -1  # number of the last call that was granted before the last refusal
    _pause: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    @property
    def now(self) -> int:
        """How many calls may be under way."""
        return int(min(self._limit, max(1, self.most())))

    @property
    def pause_seconds(self) -> float:
        """How long no call may begin; 0 for none."""
        return max(0.0, self._pause.left)

    def served(self) -> None:
        """Take note of a reply."""
        self._refusals = 0
        before = self.now
        self._limit = min(self._limit, max(1, self.most())) + self._step / before
        if self.now > before:
            self._step = min(1.0, 2 * self._step) if self._grown else self._step
            self._grown = True

    def refused(
        self, number: int, asked_seconds: float | None, *, last: int, under_way: int
    ) -> None:
        """Take note that the server refused a call for there being too many.

        Calls that were under way together may all be refused for one reason. So only a call that
        was granted since the last refusal tells that the wall still stands.

        Args:
            number: of the call.
            asked_seconds: how long the server asks to wait, if it does.
            last: the number of the last call that was granted.
            under_way: how many other calls are: so many the server takes. The end of one is the
                time for the next; where there is none, or that was refused, too, the clock tells.
        """
        self._limit = float(max(1, min(self.now - 1, under_way or self.now)))
        if number > self._last:
            self._step = max(_LEAST_STEP, self._step / 2)
            self._refusals, self._grown, self._last = self._refusals + 1, False, last
        if asked_seconds is not None or not under_way or self._refusals > 1:
            seconds = self.policy().seconds(max(0, self._refusals - 1), asked_seconds)
            self._pause = max(self._pause, Deadline.after(seconds), key=lambda one: one.at)


KEPT_SECONDS: Final = 300.0  # by the server, since the last use
# A server that takes so long to begin is not waited for: money is not worth any time.
LONGEST_WAIT_SECONDS: Final = 10.0


@dataclass(slots=True)
class Warmth:
    """The prefixes that are in the cache, and those that a call under way puts there."""

    _warm: dict[str, Deadline] = field(default_factory=dict)
    _warming: dict[str, tuple[int, Deadline]] = field(default_factory=dict)
    _calls: dict[int, str] = field(default_factory=dict)

    def cold_seconds(self, prefix: str) -> float:
        """Return how long a request with this prefix should wait for another; 0 for not at all."""
        if prefix not in self._warming or self._is_warm(prefix):
            return 0.0
        return max(0.0, self._warming[prefix][1].left)

    def granted(self, number: int, prefix: str) -> None:
        """Take note of a call that may leave now."""
        if prefix:
            self._calls[number] = prefix
            if not self._is_warm(prefix) and prefix not in self._warming:
                self._warming[prefix] = number, Deadline.after(LONGEST_WAIT_SECONDS)

    def begun(self, number: int) -> None:
        """Take note that a reply begins."""
        if prefix := self._calls.get(number):
            self._warm[prefix] = Deadline.after(KEPT_SECONDS)
            self._warming.pop(prefix, None)

    def ended(self, number: int) -> None:
        """Take note that a call is over, begun or not."""
        prefix = self._calls.pop(number, "")
        if self._warming.get(prefix, (None, None))[0] == number:
            del self._warming[prefix]

    def _is_warm(self, prefix: str) -> bool:
        return prefix in self._warm and self._warm[prefix].left > 0


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
                self._take_back(channel, SlotRelease.decode(word))
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

    def _take_back(self, channel: _Channel, returned: SlotRelease) -> None:
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
            self._journal.note(
                LoggedEvent.MODEL_CALLS_SLOWED, at_once=self._limit.now, pause=seconds
            )

    def _grant(self, channel: _Channel, word: bytes = b"%d") -> None:
        channel.asks = channel.refused = False
        number = next(self._numbers)
        with suppress(OSError):  # it has ended, or reads nothing: it gets none
            os.write(channel.fd, word % number)
            channel.held.add(number)
            self._warmth.granted(number, channel.prefix)
            self._held += 1
            self._last = number
