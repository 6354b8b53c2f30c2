"""Send this host's mail: publish the lines of each outbox, and remove them once confirmed.

Lines are published in runs. Each message names the one before it in its run, so the receiver
notices a gap: if the broker has refused or lost a message, all that follow it wait until the next
run, which begins with the first unconfirmed line again. The receiver recognizes repeated messages
by their ids, and so does the broker for some minutes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from teamd import clocks
from teamd.files import files
from teamd.hosts.outbox import ConfirmedPosition, Outbox, OutLine
from teamd.hosts.places import HostPlaces
from teamd.postman.connection import MAIL, STEP_SECONDS, BrokerConnection, NotStored
from teamd.postman.presence import new_tag

AFTER: Final = "Teamd-After"  # the key of the message before in this run; empty for the first
AGAIN: Final = "Teamd-Again"  # the message may have been published before
KEY: Final = "Teamd-Key"  # the key of the message
_ID: Final = "Nats-Msg-Id"  # the broker drops a second message with the same id for some minutes
_MOST_LINES: Final = 512  # published and not yet confirmed
_MOST_AT_ONCE: Final = 128
_MOST_BYTES: Final = 1 << 20  # in flight to the broker
_STALLED_SECONDS: Final = 15.0  # without a confirmation, after which a new run begins


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, or the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@dataclass(slots=True)
class Sender:
    """Sends the mail of one outbox over one connection.

    Attributes:
        own: the name of this host.
        reachable: returns whether the receiving host is there to confirm something.
        report: called with problems that could not be resolved.
        is_old_copy: called if this host's folder turns out to be an old copy, with the number of
            confirmed messages that it does not know.
    """

    outbox: Outbox
    own: str
    link: BrokerConnection
    reachable: Callable[[], bool]
    report: Callable[[str], None]
    is_old_copy: Callable[[int], None]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _position: ConfirmedPosition = field(default_factory=ConfirmedPosition)
    _confirmed: int = 0  # bytes at the start of the file
    _published: deque[tuple[str, int]] = field(default_factory=deque)  # keys and sizes
    _last: str = ""  # the key published last in this run
    _known: int = 0  # the size of the file at the beginning of this run
    _salt: str = ""  # makes the ids of a run its own, so that the broker drops none
    _progress: float = 0.0  # when the last confirmation came, or the run began

    async def run(self, confirmed: tuple[int, str] | None) -> None:
        """Send until cancelled.

        Args:
            confirmed: the last confirmation that the broker knows: a count and a key.

        Raises:
            StoreError: the outbox cannot be read or written.
        """
        self._resume(confirmed)
        while True:
            self.changed.clear()
            if self._stalls():
                self._begin_run()
            if not await self._publish():
                self._begin_run()
                await asyncio.sleep(1.0)
                continue
            await wait_at_most(self.changed, _STALLED_SECONDS)

    def confirm(self, n: int, key: str) -> None:
        """Remove all lines up to the confirmed one from the outbox.

        Raises:
            StoreError: the outbox is unchanged.
        """
        keys = [one for one, _ in self._published]
        if key in keys:
            for _ in range(keys.index(key) + 1):  # a line that is there twice is confirmed twice
                _, size = self._published.popleft()
                self._confirmed += size
                lines = self._position.lines + 1
                self._position = self._position._replace(lines=lines)
            self._progress = clocks.elapsed()
        self._keep(n, key)
        self._remove()
        self.changed.set()

    def _resume(self, confirmed: tuple[int, str] | None) -> None:
        """Continue behind the last confirmed line, if it is still there."""
        found = ConfirmedPosition.read(HostPlaces(self.outbox.paths).confirmed(self.outbox.host))
        self._position = (found or ConfirmedPosition())._replace(lines=0)
        if confirmed is not None:
            offset = lines = 0
            for line in self.outbox.read():
                offset, lines = offset + len(line.raw), lines + 1
                if not self._confirmed and line.key(self._link) == confirmed[1]:
                    self._confirmed = offset
                    self._position = self._position._replace(lines=lines)
            # All lines count: behind a broker that lost its disk, the receiver's count is ahead of
            # its last key.
            unknown = confirmed[0] - self._position.n - lines
            if found is not None and unknown > 0:
                self.is_old_copy(unknown)
            self._keep(*confirmed)
            self._remove()
        self._begin_run()

    def _keep(self, n: int, key: str) -> None:
        """Record a confirmation before its lines are removed, or a kill would look like a loss.

        Until they are, they count as waiting: too many for a moment rather than too few.
        """
        self._position = self._position._replace(n=max(n, self._position.n), key=key)
        self._write_position(lines=0, durable=self.outbox.durable)

    def _remove(self) -> None:
        """Remove confirmed lines, or record how many are left at the start of the file."""
        left = self.outbox.remove_start(self._confirmed)
        if left < self._confirmed:
            self._known -= self._confirmed - left
            self._confirmed = left
            self._position = self._position._replace(lines=0)
        if self._position.lines:
            self._write_position(lines=self._position.lines, durable=self.outbox.durable)

    def _write_position(self, *, lines: int, durable: bool) -> None:
        path = HostPlaces(self.outbox.paths).confirmed(self.outbox.host)
        self._position._replace(lines=lines).write(path, durable=durable)

    def _begin_run(self, salt: str = "") -> None:
        self._published.clear()
        self._last, self._salt, self._progress = "", salt, clocks.elapsed()
        self._known = files.size(self.outbox.path)

    def _stalls(self) -> bool:
        late = clocks.elapsed() - self._progress > _STALLED_SECONDS
        return late and bool(self._published) and self.reachable()

    async def _publish(self) -> bool:
        """Publish waiting lines; return whether the broker has stored all of them."""
        while lines := self._next_lines():
            if self.outbox.durable:  # the writer of the last line may still wait for the disk
                files.make_durable(self.outbox.path)
            stored, known = [], self._known - self._offset
            for line in lines:
                key = line.key(self._link)
                headers = {_ID: key + self._salt, KEY: key, AFTER: self._last}
                if known > 0:
                    headers[AGAIN] = "1"
                known -= len(line.raw)
                subject = f"{MAIL}.{self.outbox.host}.{self.own}"
                stored.append(await self.link.publish(subject, line.raw[:-1], headers))
                self._published.append((key, len(line.raw)))
                self._last = key
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    answers = await asyncio.gather(*stored)
            except (*NotStored, TimeoutError):
                return False
            if not self._salt and any(one.duplicate for one in answers):
                # The receiver may not get the message that the next one names.
                self._begin_run(salt=f"-{new_tag()}")
        return True

    def _next_lines(self) -> list[OutLine]:
        """Return the next lines to publish; remove lines that no host would accept."""
        found, size = list[OutLine](), 0
        room = min(_MOST_AT_ONCE, _MOST_LINES - len(self._published))
        for line in self.outbox.read(self._offset):
            if len(found) >= room or size > _MOST_BYTES:
                break
            if line.is_mail and not line.is_damaged:
                found.append(line)
                size += len(line.raw)
            elif found or self._published:
                break  # until the lines before it are confirmed
            else:
                self._pass_over(line)
        return found

    def _pass_over(self, line: OutLine) -> None:
        if line.is_damaged:
            self.outbox.keep_aside(line)
            self.report("a line of what waits for it was damaged, and is not sent")
        self._confirmed += len(line.raw)
        self._position = self._position._replace(lines=self._position.lines + 1)
        self._remove()

    @property
    def _offset(self) -> int:
        """The offset in the file behind the lines published in this run."""
        return self._confirmed + sum(size for _, size in self._published)

    @property
    def _link(self) -> str:
        return f"{self.own}>{self.outbox.host}"
