"""The slots for model calls: granted to teammates first come first served.

The supervisor grants them because it knows which teammates have ended: it frees their slots.
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
from teamd.models import RetryPolicy
from teamd.team.slot_messages import ASK, BEGUN, LONGEST_WORD, SlotRelease

_LEAST_STEP: Final = 1 / 16


@dataclass(slots=True)
class ConcurrencyLimit:
    """The number of calls that may be under way, and the pause after a refusal.

    Attributes:
        most: returns the number that the settings allow.
        policy: returns how long to wait after a refusal.
    """

    most: Callable[[], int]
    policy: Callable[[], RetryPolicy]
    _limit: float = 1e9
    _step: float = 1.0  # so much grows the limit with as many replies as there are slots
    _grown: bool = False  # since the last refusal
    _refusals: int = 0  # in a row
    _last: int = -1  # the last call that was granted before the last refusal
    _pause: Deadline = field(default_factory=lambda: Deadline.after(0.0))

    @property
    def now(self) -> int:
        """The number of calls that may be under way."""
        return int(min(self._limit, max(1, self.most())))

    @property
    def pause_seconds(self) -> float:
        """How long no call may begin."""
        return max(0.0, self._pause.left)

    def served(self) -> None:
        """Count a reply: the limit grows."""
        self._refusals = 0
        before = self.now
        self._limit = min(self._limit, max(1, self.most())) + self._step / before
        if self.now > before:
            self._step = min(1.0, 2 * self._step) if self._grown else self._step
            self._grown = True

    def refused(
        self, number: int, asked_seconds: float | None, *, last: int, under_way: int
    ) -> None:
        """Count a refusal for too many calls: the limit shrinks.

        Calls that were under way together may all be refused for one reason. So a refusal counts as
        a further one in a row only if its call was granted after the refusal before.

        Args:
            number: of the call.
            asked_seconds: how long the server asks to wait, if it says so.
            last: the number of the last call that was granted.
            under_way: the number of other calls, which the server has accepted. The next call may
                begin when one of them ends. A pause is needed only if there are none, or if the
                next call is refused, too.
        """
        self._limit = float(max(1, min(self.now - 1, under_way or self.now)))
        if number > self._last:
            self._step = max(_LEAST_STEP, self._step / 2)
            self._refusals, self._grown, self._last = self._refusals + 1, False, last
        if asked_seconds is not None or not under_way or self._refusals > 1:
            seconds = self.policy().seconds(max(0, self._refusals - 1), asked_seconds)
            self._pause = max(self._pause, Deadline.after(seconds), key=lambda one: one.at)


KEPT_SECONDS: Final = 300.0  # how long the server caches a prefix after its last use
# Saving money is not worth a longer wait for a server that is slow to begin its reply.
LONGEST_WAIT_SECONDS: Final = 10.0


@dataclass(slots=True)
class Warmth:
    """The prefixes that the server has cached, and those that a call under way will cache."""

    _warm: dict[str, Deadline] = field(default_factory=dict)
    _warming: dict[str, tuple[int, Deadline]] = field(default_factory=dict)
    _calls: dict[int, str] = field(default_factory=dict)

    def cold_seconds(self, prefix: str) -> float:
        """Return how long a request with this prefix should wait for the first one."""
        if prefix not in self._warming or self._is_warm(prefix):
            return 0.0
        return max(0.0, self._warming[prefix][1].left)

    def granted(self, number: int, prefix: str) -> None:
        if prefix:
            self._calls[number] = prefix
            if not self._is_warm(prefix) and prefix not in self._warming:
                self._warming[prefix] = number, Deadline.after(LONGEST_WAIT_SECONDS)

    def begun(self, number: int) -> None:
        if prefix := self._calls.get(number):
            self._warm[prefix] = Deadline.after(KEPT_SECONDS)
            self._warming.pop(prefix, None)

    def ended(self, number: int) -> None:
        prefix = self._calls.pop(number, "")
        if self._warming.get(prefix, (None, None))[0] == number:
            del self._warming[prefix]

    def _is_warm(self, prefix: str) -> bool:
        return prefix in self._warm and self._warm[prefix].left > 0


@dataclass(slots=True)
class _Channel:
    """The supervisor's end of a teammate's channel.

    Attributes:
        held: the numbers of the slots that the teammate has.
        waits: whether the teammate is in the queue.
        prefix: a digest of the beginning of its next request; empty if the server has no cache.
        refused: whether its last call was refused; it has waited before and goes to the front.
    """

    name: str
    fd: int
    held: set[int] = field(default_factory=set)
    waits: bool = False
    prefix: str = ""
    refused: bool = False


class Slots:
    """Grants the slots of a team; it never waits for a teammate.

    A teammate has one place in the queue, however many of its conversations wait. So nothing that
    it writes to its channel, valid or not, delays the others by more than one call.
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
        """Return a descriptor that is readable when a teammate has written to its channel."""
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
        """Free the slots of a teammate that has ended."""
        channel = self._channels.pop(name, None)
        if channel is None:
            return
        self._selector.unregister(channel.fd)
        os.close(channel.fd)
        self._held -= len(channel.held)
        for number in channel.held:
            self._warmth.ended(number)
        if channel.waits:
            self._queue.remove(channel)
        self._grant_free()

    def serve(self) -> None:
        """Read one datagram of each teammate that has written, and grant the free slots."""
        for key, _ in self._selector.select(0):
            self._receive(key.data)
        self._grant_free()

    @property
    def next_due_seconds(self) -> float | None:
        """The seconds until a slot may be granted without news; `None` if no teammate waits."""
        if not self._queue:
            return None
        if pause := self._limit.pause_seconds:
            return pause
        if self._held >= self._limit.now:
            return None
        return min(self._warmth.cold_seconds(channel.prefix) for channel in self._queue)

    def _grant_free(self) -> None:
        if not self._queue or self._limit.pause_seconds:
            return
        for channel in list(self._queue):
            if self._held >= self._limit.now:
                return
            if not self._warmth.cold_seconds(channel.prefix):
                self._queue.remove(channel)
                self._grant(channel)

    def _receive(self, channel: _Channel) -> None:
        try:
            word = os.read(channel.fd, LONGEST_WORD)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if not word:  # the teammate has ended, and is reaped in a moment
            self.close(channel.name)
            return
        try:
            kind, _, rest = word.partition(b" ")
            if kind == ASK:
                self._enqueue(channel, rest.decode("ascii"))
            elif kind == BEGUN:
                self._warmth.begun(int(rest))
            else:
                self._take_back(channel, SlotRelease.decode(word))
        except ValueError:  # close the channel: invalid datagrams could go on forever
            self._journal.warn("nonsense about slots", name=channel.name, word=repr(word))
            self.close(channel.name)

    def _enqueue(self, channel: _Channel, prefix: str) -> None:
        if channel.waits:
            return
        channel.waits, channel.prefix = True, prefix
        if channel.refused:
            self._queue.appendleft(channel)
        else:
            self._queue.append(channel)

    def _take_back(self, channel: _Channel, slot: SlotRelease) -> None:
        if slot.number not in channel.held:
            raise ValueError(f"{channel.name} has no slot {slot.number}")
        channel.held.remove(slot.number)
        self._warmth.ended(slot.number)
        self._held -= 1
        if slot.served:
            self._limit.served()
        if slot.refused:
            channel.refused = True
            before, seconds = self._limit.now, slot.retry_after_seconds
            self._limit.refused(slot.number, seconds, last=self._last, under_way=self._held)
            self._log_limit(before)

    def _log_limit(self, before: int) -> None:
        seconds = round(self._limit.pause_seconds, 1)
        if self._limit.now != before or seconds:
            self._journal.note(
                LoggedEvent.MODEL_CALLS_SLOWED, at_once=self._limit.now, pause=seconds
            )

    def _grant(self, channel: _Channel) -> None:
        channel.waits = channel.refused = False
        number = next(self._numbers)
        with suppress(OSError):  # the teammate has ended, or does not read
            os.write(channel.fd, b"%d" % number)
            channel.held.add(number)
            self._warmth.granted(number, channel.prefix)
            self._held += 1
            self._last = number
