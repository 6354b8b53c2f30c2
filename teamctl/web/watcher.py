"""The state of the team that all pages share: a changed part is read again, and sent to each."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from teamctl.tail import hints
from teamd.errors import TeamError
from teamd.files.watch import Watch

MOST_WAITING: Final = 64  # unread events of one reader
SNAPSHOT: Final = "snapshot"
_SHARE: Final = 4.0  # the pause after a read is this many times its duration
_LOOKS: Final = 4  # reads at a time, each in a thread


@dataclass(frozen=True, slots=True)
class StateEvent:
    """A changed part of the state, or all of it; `data` is one line of JSON."""

    id: str
    name: str
    data: str


class Reader:
    """The events of one page, which is disconnected if it does not keep up."""

    def __init__(self, first: StateEvent) -> None:
        self._waiting = deque([first])
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


class EventLog:
    """The state by part names, and its readers.

    Attributes:
        boot: the id of this server's events.
    """

    def __init__(self) -> None:
        self.boot = secrets.token_hex(4)
        self._state: dict[str, str] = {}
        self._readers: set[Reader] = set()

    def publish(self, name: str, value: Any) -> None:
        """Set a part of the state; a change is sent to every reader."""
        data = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
        if self._state.get(name) != data:
            self._state[name] = data
            for reader in self._readers:
                reader.offer(StateEvent(self.boot, name, data))

    def enter(self) -> Reader:
        """Add a reader; its first event contains the whole state."""
        parts = (f"{json.dumps(name)}:{data}" for name, data in self._state.items())
        reader = Reader(StateEvent(self.boot, SNAPSHOT, f"{{{','.join(parts)}}}"))
        self._readers.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        self._readers.discard(reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPart:
    """A part of the state.

    Attributes:
        name: the name of its events.
        look: returns the part as JSON values; called in a thread, never twice at a time.
        folders: changes in them cause a reread.
        pause_seconds: the pause between two reads.
        recheck_seconds: the time after which it is reread without a change.
        waited: whether a new reader waits for it; otherwise it is sent once it has been read.
    """

    name: str
    look: Callable[[], Any]
    folders: Sequence[Path]
    pause_seconds: float = 0.02
    recheck_seconds: float = 30.0
    waited: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    looked: asyncio.Event = field(default_factory=asyncio.Event)

    def read(self) -> Any:
        """Return the part, or an object that says why it cannot be read."""
        try:
            return self.look()
        except TeamError as error:
            return {"trouble": error.for_person()}
        except Exception as error:  # noqa: BLE001 -- an error of one part must not hide the others
            return {"trouble": f"{type(error).__name__}: {error}"}


class PartsWatcher:
    """Reads the parts again after each change, while there are readers."""

    def __init__(self, parts: Sequence[WatchedPart], log: EventLog) -> None:
        self.log = log
        self._parts = parts
        self._task: asyncio.Task[None] | None = None
        self._readers = 0
        self._wanted = asyncio.Event()

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Reader]:
        """Yield a new reader; the first one starts or continues the watch."""
        if not self._readers:
            for part in self._parts:
                part.looked.clear()
                part.changed.set()
        self._readers += 1
        self._wanted.set()
        self._task = self._task or asyncio.create_task(self._follow())
        try:
            for part in self._parts:
                if part.waited:
                    await part.looked.wait()
            reader = self.log.enter()
            try:
                yield reader
            finally:
                self.log.leave(reader)
        finally:
            self._readers -= 1
            if not self._readers:
                self._wanted.clear()

    def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        def tell(folder: Path) -> None:
            for part in self._parts:
                if folder in part.folders:
                    part.changed.set()

        folders = dict.fromkeys(folder for part in self._parts for folder in part.folders)
        limiter = anyio.CapacityLimiter(_LOOKS)
        with hints(folders, tell) as watches:
            async with asyncio.TaskGroup() as tasks:
                for part in self._parts:
                    own = [watches[folder] for folder in part.folders]
                    tasks.create_task(self._keep(part, own, limiter))

    async def _keep(
        self, part: WatchedPart, watches: Sequence[Watch], limiter: anyio.CapacityLimiter
    ) -> None:
        """Read one part again after each change."""
        while True:
            await self._wanted.wait()
            part.changed.clear()
            began = time.monotonic()
            self.log.publish(part.name, await anyio.to_thread.run_sync(part.read, limiter=limiter))
            part.looked.set()
            took = time.monotonic() - began
            await asyncio.sleep(max(part.pause_seconds, took * _SHARE))
            seconds = min((part.recheck_seconds, *(one.recheck_seconds for one in watches)))
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await part.changed.wait()
