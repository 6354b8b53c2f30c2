"""The watcher of all pages: snapshots, slow readers, and reads only while there are readers."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from teamctl.web.watcher import (
    MOST_WAITING,
    SNAPSHOT,
    EventLog,
    PartsWatcher,
    Reader,
    StateEvent,
    WatchedPart,
)
from teamd.errors import TeamError
from tests.waiting import until


class Looked:
    """A part that counts how often it was read."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.times = 0

    def __call__(self) -> Any:
        """Return the text of the file, or raise."""
        self.times += 1
        text = self.file.read_text() if self.file.exists() else None
        if text == "damaged":
            raise TeamError("it is damaged; mend it")
        if text == "strange":
            raise KeyError(text)
        return text

    def part(self, **more: Any) -> WatchedPart:
        """Return it as a part of the watcher."""
        return WatchedPart(name="file", look=self, folders=[self.file.parent], **more)


def in_loop(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    """Run a test in an event loop of its own."""

    def run(tmp_path: Path) -> None:
        async def life() -> None:
            async with asyncio.timeout(30):
                await test(tmp_path)

        asyncio.run(life())

    return run


async def first(reader: Reader) -> StateEvent:
    """Return the next event."""
    return await anext(reader.events())


@in_loop
async def test_all_readers_share_one_check(tmp_path: Path) -> None:
    looked = Looked(tmp_path / "file")
    watcher = PartsWatcher([looked.part()], EventLog())
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(watcher.reader()) for _ in range(50)]
        assert looked.times == 1
        for reader in readers:
            assert (await first(reader)).data == '{"file":null}'
        looked.file.write_text("new")
        for reader in readers:
            assert (await first(reader)).data == '"new"'
        assert looked.times <= 4  # the file is created, written and closed
    watcher.stop()


@in_loop
async def test_without_readers_the_watcher_does_not_check(tmp_path: Path) -> None:
    looked = Looked(tmp_path / "file")
    watcher = PartsWatcher([looked.part(recheck_seconds=0.01, pause_seconds=0.0)], EventLog())
    async with watcher.reader() as reader:
        assert (await first(reader)).data == '{"file":null}'
        await until(lambda: looked.times > 2, what="it is looked at again without any change")
    await asyncio.sleep(0.05)
    times = looked.times
    await asyncio.sleep(0.05)
    assert looked.times == times
    looked.file.write_text("meanwhile")
    async with watcher.reader() as reader:
        assert (await first(reader)).data == '{"file":"meanwhile"}'
    watcher.stop()


@in_loop
async def test_an_error_in_one_part_does_not_hide_the_others(tmp_path: Path) -> None:
    bad, good = Looked(tmp_path / "bad"), Looked(tmp_path / "good")
    log = EventLog()
    parts = [bad.part(), WatchedPart(name="good", look=good, folders=[tmp_path])]
    watcher = PartsWatcher(parts, log)
    bad.file.write_text("damaged")
    async with watcher.reader() as reader:
        snapshot = (await first(reader)).data
        assert '"file":{"trouble":"it is damaged; mend it"}' in snapshot
        assert '"good":null' in snapshot
        bad.file.write_text("strange")
        await until(lambda: "KeyError" in log._state["file"], what="the trouble is told")
        bad.file.write_text("mended")
        await until(lambda: log._state["file"] == '"mended"', what="it goes on")
    watcher.stop()


@in_loop
async def test_a_folder_that_is_created_later_is_watched(tmp_path: Path) -> None:
    looked = Looked(tmp_path / "folder" / "file")
    watcher = PartsWatcher([looked.part()], EventLog())
    async with watcher.reader() as reader:
        await first(reader)
        looked.file.parent.mkdir()
        looked.file.write_text("new")
        assert (await first(reader)).data == '"new"'
    watcher.stop()


@in_loop
async def test_a_change_is_seen_in_a_moment(tmp_path: Path) -> None:
    looked = Looked(tmp_path / "file")
    watcher = PartsWatcher([looked.part()], EventLog())
    took = []
    async with watcher.reader() as reader:
        await first(reader)
        for number in range(20):
            began = time.perf_counter()
            looked.file.write_text(str(number))
            event = await first(reader)
            while event.data != f'"{number}"':  # an empty file was seen first
                event = await first(reader)
            took.append(time.perf_counter() - began)
    watcher.stop()
    assert statistics.median(took) < 0.1


def taken(reader: Reader) -> list[StateEvent]:
    """Return the events that a reader gets without waiting."""

    async def take() -> list[StateEvent]:
        found: list[StateEvent] = []

        async def read() -> None:
            async for event in reader.events():
                found.append(event)  # noqa: PERF401 -- kept when it is cut off by the timeout

        task = asyncio.create_task(read())
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        return found

    return asyncio.run(take())


def test_a_reader_gets_a_snapshot_and_then_each_change() -> None:
    log = EventLog()
    log.publish("team", {"name": "x"})
    log.publish("mail", 3)
    reader = log.enter()
    (event,) = taken(reader)
    assert (event.name, json.loads(event.data)) == (SNAPSHOT, {"team": {"name": "x"}, "mail": 3})
    log.publish("mail", 3)  # unchanged
    log.publish("mail", 4)
    assert [(event.name, event.data) for event in taken(reader)] == [("mail", "4")]


def test_a_slow_reader_is_cut_off_and_does_not_delay_others() -> None:
    log = EventLog()
    slow, quick = log.enter(), log.enter()
    taken(quick)
    for number in range(MOST_WAITING + 5):
        log.publish("team", number)
        assert taken(quick)[-1].data == str(number)
    assert taken(slow) == []

    async def rest() -> list[StateEvent]:
        return [event async for event in slow.events()]  # the stream of events ends

    assert asyncio.run(rest()) == []
