"""The state of the team as pages know it, and the events that change it, each with an id."""

from __future__ import annotations

import asyncio
import json
import resource
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_STRANGERS: Final = 128  # connections over which nothing was asked with a token
MOST_READERS: Final = 256  # the others
BACKLOG: Final = 256  # as many are accepted in one go, before any of them is counted
STRANGER_SECONDS: Final = 15.0  # until a connection has asked for something
STUCK_SECONDS: Final = 10.0  # until a reader takes what is sent to it
_DESCRIPTORS: Final = 1024  # what these take at most, watches and files included


class ConnectionLimit:
    """All connections, the oldest first; beyond the bound the oldest stranger has to go.

    So whoever opens thousands pushes out its own: one that asks at once is answered. Of those that
    showed a token none is pushed out, and one too many is refused.
    """

    def __init__(self, *, strangers: int = MOST_STRANGERS, readers: int = MOST_READERS) -> None:
        self._most = strangers, readers
        self._strangers: dict[Connection, None] = {}
        self._readers: dict[Connection, None] = {}

    def enter(self, one: Connection) -> None:
        """Count a new one."""
        self._strangers[one] = None
        if len(self._strangers) > self._most[0]:
            next(iter(self._strangers)).abort()

    def know(self, one: Connection) -> bool:
        """Count it among those that showed a token; return whether there is room for it."""
        if one in self._readers:
            return True
        if len(self._readers) >= self._most[1]:
            return False
        self._strangers.pop(one, None)
        self._readers[one] = None
        return True

    def leave(self, one: Connection) -> None:
        """Count it no more."""
        self._strangers.pop(one, None)
        self._readers.pop(one, None)


class Connection(H11Protocol):
    """One connection. `crowd` is set by `protocol`, for uvicorn makes connections itself."""

    crowd: ConnectionLimit

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        self._serve, self.app = self.app, self._named
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's
        """Begin."""
        super().connection_made(transport)
        self.crowd.enter(self)
        self._limit(STRANGER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._limit(None)
        self.crowd.leave(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the other side does not read: it is cut off unless it goes on soon."""
        super().pause_writing()
        self._limit(STUCK_SECONDS)

    def resume_writing(self) -> None:
        """Note that it reads again."""
        super().resume_writing()
        self._limit(None)

    def vouch(self) -> bool:
        """Note that a token was shown over this connection; return whether there is room for it."""
        self._limit(None)
        return self.crowd.know(self)

    def abort(self) -> None:
        """End it at once, whatever is still to be sent."""
        self.crowd.leave(self)
        self.transport.abort()

    async def _named(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve a request, which can name its connection."""
        scope["connection"] = self
        await self._serve(scope, receive, send)

    def _limit(self, seconds: float | None) -> None:
        """Let it live for so long, unless this is called again."""
        if self._deadline is not None:
            self._deadline.cancel()
        later = asyncio.get_running_loop().call_later
        self._deadline = None if seconds is None else later(seconds, self.abort)


def protocol(crowd: ConnectionLimit) -> type[Connection]:
    """Return the class of the connections of one server."""
    return type("ServedConnection", (Connection,), {"crowd": crowd})


def allow_descriptors() -> None:
    """Raise the limit on open files as far as needed; a bound on connections must come first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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
