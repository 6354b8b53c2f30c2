"""The file watcher: it rereads changed parts of the state once for all pages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from teamctl.web.events import EventLog, Reader
from teamd.errors import TeamError
from teamd.files.watch import Watch, watch

LINGER_SECONDS: Final = 10.0  # a page that reconnects in time resumes
_SHARE: Final = 4.0  # the pause after a read is this many times its duration
_LOOKS: Final = 4  # reads at a time, each in a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPart:
    """A part of the state.

    Attributes:
        name: the name of its events.
        look: returns the part as JSON values; called in a thread, never twice at a time.
        folders: changes in them cause a reread.
        pause_seconds: the pause between two reads.
        recheck_seconds: the time after which it is reread without a change.
    """

    name: str
    look: Callable[[], Any]
    folders: Sequence[Path]
    pause_seconds: float = 0.02
    recheck_seconds: float = 30.0


@dataclass(eq=False, slots=True)
class PartsWatcher:
    """Watches the parts while there are readers."""

    parts: Sequence[WatchedPart]
    log: EventLog
    linger_seconds: float = LINGER_SECONDS
    _looking: asyncio.Task[None] | None = None
    _complete: asyncio.Event = field(default_factory=asyncio.Event)
    _leaving: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def reader(self, last_id: str) -> AsyncIterator[Reader]:
        """Continue after the event of an id; the first reader starts the watch."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        if self._looking is None:
            self._complete.clear()
            self._looking = asyncio.get_running_loop().create_task(self._look())
        await self._complete.wait()
        reader = self.log.enter(last_id)
        try:
            yield reader
        finally:
            self.log.leave(reader)
            self._rest_later()

    def stop(self) -> None:
        """Stop watching unless there are readers."""
        if self._looking is not None and not self.log.read:
            self._looking.cancel()
            self._looking = None
            self.log.forget()

    def _rest_later(self) -> None:
        if not self.log.read and self._leaving is None:
            later = asyncio.get_running_loop().call_later
            self._leaving = later(self.linger_seconds, self.stop)

    async def _look(self) -> None:
        changed = {part.name: asyncio.Event() for part in self.parts}
        folders = dict.fromkeys(folder for part in self.parts for folder in part.folders)
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            watches = {one: stack.enter_context(closing(watch(one))) for one in folders}
            for folder, watching in watches.items():
                told = [changed[part.name] for part in self.parts if folder in part.folders]
                fd = watching.fileno()
                loop.add_reader(fd, partial(_hint, watching, told))
                stack.callback(loop.remove_reader, fd)
            limiter = anyio.CapacityLimiter(_LOOKS)
            async with asyncio.TaskGroup() as tasks:
                looks = []
                for part in self.parts:
                    own = [watches[folder] for folder in part.folders]
                    looked = asyncio.Event()
                    looks.append(looked)
                    event = changed[part.name]
                    tasks.create_task(self._keep(part, event, own, limiter, looked))
                for looked in looks:
                    await looked.wait()
                self._complete.set()

    async def _keep(
        self,
        part: WatchedPart,
        changed: asyncio.Event,
        watches: Sequence[Watch],
        limiter: anyio.CapacityLimiter,
        looked: asyncio.Event,
    ) -> None:
        """Reread one part after each change."""
        while True:
            changed.clear()
            began = time.monotonic()
            value = await anyio.to_thread.run_sync(_look_at, part, limiter=limiter)
            self.log.publish(part.name, value)
            looked.set()
            took = time.monotonic() - began
            await asyncio.sleep(max(part.pause_seconds, took * _SHARE))
            seconds = min((part.recheck_seconds, *(one.recheck_seconds for one in watches)))
            try:
                async with asyncio.timeout(seconds):
                    await changed.wait()
            except TimeoutError:
                pass


def _hint(watching: Watch, told: Sequence[asyncio.Event]) -> None:
    watching.changed()
    for event in told:
        event.set()


def _look_at(part: WatchedPart) -> Any:
    try:
        return part.look()
    except TeamError as error:
        return {"trouble": error.for_person()}
    except Exception as error:  # noqa: BLE001 -- an error of one part must not hide the others
        return {"trouble": f"{type(error).__name__}: {error}"}
