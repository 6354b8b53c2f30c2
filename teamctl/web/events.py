"""The connections of pages, and the stream of state changes with ids."""

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

MOST_STRANGERS: Final = 128  # connections without a valid token
MOST_READERS: Final = 256  # connections with a valid token
BACKLOG: Final = 256  # accepted at once, before they are counted
STRANGER_SECONDS: Final = 15.0  # until the first request with a token
STUCK_SECONDS: Final = 10.0  # the time for a reader to read the sent data
_DESCRIPTORS: Final = 1024  # the descriptors for all connections, including watches and files


class ConnectionLimit:
    """All connections, the oldest first; beyond the limit the oldest stranger is closed.

    A flood of connections thus closes its own. Connections that showed a token are never closed;
    beyond their limit, new ones are refused.
    """

    def __init__(self, *, strangers: int = MOST_STRANGERS, readers: int = MOST_READERS) -> None:
        self._most = strangers, readers
        self._strangers: dict[Connection, None] = {}
        self._readers: dict[Connection, None] = {}

    def enter(self, one: Connection) -> None:
        """Count a new connection."""
        self._strangers[one] = None
        if len(self._strangers) > self._most[0]:
            next(iter(self._strangers)).abort()

    def know(self, one: Connection) -> bool:
        """Count a connection with a valid token; return whether there is room."""
        if one in self._readers:
            return True
        if len(self._readers) >= self._most[1]:
            return False
        self._strangers.pop(one, None)
        self._readers[one] = None
        return True

    def leave(self, one: Connection) -> None:
        self._strangers.pop(one, None)
        self._readers.pop(one, None)


class Connection(H11Protocol):
    """One connection. `protocol` sets `crowd`, since uvicorn makes the connections."""

    crowd: ConnectionLimit

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        self._serve, self.app = self.app, self._named
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's
        """Count the connection, and limit its time without a token."""
        super().connection_made(transport)
        self.crowd.enter(self)
        self._limit(STRANGER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        self._limit(None)
        self.crowd.leave(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Close the connection soon unless the other side reads on."""
        super().pause_writing()
        self._limit(STUCK_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._limit(None)

    def vouch(self) -> bool:
        """Record that a token was shown; return whether there is room."""
        self._limit(None)
        return self.crowd.know(self)

    def abort(self) -> None:
        """Close at once, dropping unsent data."""
        self.crowd.leave(self)
        self.transport.abort()

    async def _named(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve a request with its connection in the scope."""
        scope["connection"] = self
        await self._serve(scope, receive, send)

    def _limit(self, seconds: float | None) -> None:
        """Close it after this many seconds; `None` cancels that."""
        if self._deadline is not None:
            self._deadline.cancel()
        later = asyncio.get_running_loop().call_later
        self._deadline = None if seconds is None else later(seconds, self.abort)


def protocol(crowd: ConnectionLimit) -> type[Connection]:
    """Return the connection class of one server."""
    return type("ServedConnection", (Connection,), {"crowd": crowd})


def allow_descriptors() -> None:
    """Raise the limit on open files as far as the connection limits need it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


KEPT: Final = 256  # events kept for pages that reconnect
MOST_WAITING: Final = 64  # unread events of one reader
SNAPSHOT: Final = "snapshot"
_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class StateEvent:
    """A changed part of the state, or all of it; `data` is one line of JSON."""

    id: str
    name: str
    data: str


class Reader:
    """The events of one page, which is disconnected if it does not keep up."""

    def __init__(self, first: Iterable[StateEvent]) -> None:
        self._waiting = deque(first)
        self._news = asyncio.Event()
        self._cut = False

    def offer(self, event: StateEvent) -> None:
        """Add an event, or disconnect a reader with too many."""
        if len(self._waiting) >= MOST_WAITING:
            self._cut = True
            self._waiting.clear()
        else:
            self._waiting.append(event)
        self._news.set()

    async def events(self) -> AsyncGenerator[StateEvent]:
        """Yield events until the reader is disconnected; it may reconnect."""
        while not self._cut:
            while self._waiting:
                yield self._waiting.popleft()
            self._news.clear()
            if not self._cut:
                await self._news.wait()


@dataclass(eq=False, slots=True)
class EventLog:
    """The state by part names, and the last events.

    Attributes:
        boot: distinguishes the ids of this server from those of an earlier one.
    """

    boot: str = field(default_factory=lambda: secrets.token_hex(4))
    _state: dict[str, str] = field(default_factory=dict)
    _number: int = 0
    _recent: deque[StateEvent] = field(default_factory=lambda: deque(maxlen=KEPT))
    _readers: set[Reader] = field(default_factory=set)

    @property
    def read(self) -> bool:
        """Whether there are readers."""
        return bool(self._readers)

    def publish(self, name: str, value: Any) -> None:
        """Set a part of the state; a change is sent to every reader."""
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
        """Forget the events, because changes are no longer followed."""
        self._recent.clear()
        self._number += 1  # so that the last id cannot be resumed from

    def enter(self, last_id: str) -> Reader:
        """Add a reader after the event of an id, or with a snapshot for an unknown id."""
        reader = Reader(self._since(last_id))
        self._readers.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
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
