"""Breaking off: the work ends, and who is told to end ends all the same."""

from __future__ import annotations

import asyncio

import pytest

from teamd.agent.breaking import Breakable, BrokenOffError


async def never() -> None:
    await asyncio.Event().wait()


def test_what_is_broken_off_ends_and_the_next_is_done() -> None:
    async def scenario() -> None:
        breakable = Breakable()
        asyncio.get_running_loop().call_soon(breakable.break_off)
        with pytest.raises(BrokenOffError):
            await breakable.run(never())
        assert await breakable.run(asyncio.sleep(0, "done")) == "done"

    asyncio.run(scenario())


def test_nothing_under_way_is_nothing_to_break_off() -> None:
    async def scenario() -> None:
        breakable = Breakable()
        breakable.break_off()
        assert await breakable.run(asyncio.sleep(0, "done")) == "done"

    asyncio.run(scenario())


def test_who_is_cancelled_and_broken_off_at_once_is_cancelled() -> None:
    """A SIGTERM that comes with a Ctrl-C must not be lost: its process would have to be killed."""

    async def scenario() -> None:
        breakable = Breakable()
        life = asyncio.create_task(breakable.run(never()))
        await asyncio.sleep(0)
        breakable.break_off()
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await life

    asyncio.run(scenario())


def test_who_is_cancelled_leaves_no_work_behind() -> None:
    async def scenario() -> None:
        breakable = Breakable()
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await never()
            finally:
                ended.set()

        life = asyncio.create_task(breakable.run(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await life
        await asyncio.wait_for(ended.wait(), timeout=20)

    asyncio.run(scenario())
