"""The state of the team as pages know it, and the events that change it, each with an id."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

KEPT: Final = 256  # events, for pages that come back
MOST_WAITING: Final = 64  # events that one reader has not taken yet
SNAPSHOT: Final = "snapshot"
_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class StateEvent:
    """A part of the state that has changed, or all of it; `data` is JSON in one line."""

    id: str
    name: str
    data: str


class Reader:
    """One page's events. It is never waited for: one that does not keep up is cut off."""

    def __init__(self, first: Iterable[StateEvent]) -> None:
        self._waiting = deque(first)
        self._news = asyncio.Event()
        self._cut = False

    def offer(self, event: StateEvent) -> None:
        """Add an event, unless too many wait already."""
        if len(self._waiting) >= MOST_WAITING:
            self._cut = True
            self._waiting.clear()
        else:
            self._waiting.append(event)
        self._news.set()

    async def events(self) -> AsyncGenerator[StateEvent]:
        """Yield events as they come; it ends for a reader that is cut off, who may come back."""
        while not self._cut:
            while self._waiting:
                yield self._waiting.popleft()
            self._news.clear()
            if not self._cut:
                await self._news.wait()


@dataclass(eq=False, slots=True)
class EventLog:
    """The parts of the state by their names, and the last events.

    Attributes:
        boot: tells the ids of this server from those of an earlier one.
    """

    boot: str = field(default_factory=lambda: secrets.token_hex(4))
    _state: dict[str, str] = field(default_factory=dict)
    _number: int = 0
    _recent: deque[StateEvent] = field(default_factory=lambda: deque(maxlen=KEPT))
    _readers: set[Reader] = field(default_factory=set)

    @property
    def read(self) -> bool:
        """Return whether anybody reads."""
        return bool(self._readers)

    def publish(self, name: str, value: Any) -> None:
        """Set a part of the state, and tell every reader where it is another one now."""
        data = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
        if self._state.get(name) == data:
            return
        self._state[name] = data
        self._number += 1
        event = StateEvent(f"{self.boot}-{self._number}", name, data)
        self._recent.append(event)
        for reader in self._readers:
            reader.offer(event)

    def forget(self) -> None:
        """Forget the events, since nobody looked at what happened next."""
        self._recent.clear()
        self._number += 1  # the last id does not lead on to what comes

    def enter(self, last_id: str) -> Reader:
        """Begin to read behind the event of an id, or with a snapshot where that is not known."""
        reader = Reader(self._since(last_id))
        self._readers.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        """Read no more."""
        self._readers.discard(reader)

    def _since(self, last_id: str) -> list[StateEvent]:
        boot, _, number = last_id.partition("-")
        known = boot == self.boot and number.isascii() and number.isdigit()
        missed = self._number - int(number[:_DIGITS]) if known else -1
        if 0 <= missed <= min(len(self._recent), MOST_WAITING):
            return list(self._recent)[len(self._recent) - missed :]
        return [StateEvent(f"{self.boot}-{self._number}", SNAPSHOT, self._snapshot())]

    def _snapshot(self) -> str:
        parts = (f"{json.dumps(name)}:{data}" for name, data in self._state.items())
        return "{" + ",".join(parts) + "}"
