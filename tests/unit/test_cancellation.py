"""Interrupting a turn: the work ends, and a cancellation of the task is not lost."""

from __future__ import annotations

import asyncio

import pytest

from teamd.agent.turn import Cancellation, TurnCancelled


async def never() -> None:
    await asyncio.Event().wait()


def test_interrupted_work_ends_and_the_next_work_runs() -> None:
    async def scenario() -> None:
        cancellation = Cancellation()
        asyncio.get_running_loop().call_soon(cancellation.cancel, "lead")
        with pytest.raises(TurnCancelled):
            await cancellation.run(never())
        assert await cancellation.run(asyncio.sleep(0, "done")) == "done"

    asyncio.run(scenario())


def test_a_cancel_between_two_pieces_of_work_ends_the_next_one() -> None:
    """A call that has just ended must not be followed by a command that runs for an hour."""

    async def scenario() -> None:
        cancellation = Cancellation()
        cancellation.cancel("lead")
        with pytest.raises(TurnCancelled, match="interrupted by lead"):
            await cancellation.run(never())
        assert await cancellation.run(asyncio.sleep(0, "done")) == "done"

    asyncio.run(scenario())


def test_a_forgotten_cancel_has_no_effect() -> None:
    async def scenario() -> None:
        cancellation = Cancellation()
        cancellation.cancel("lead")
        cancellation.forget()
        assert await cancellation.run(asyncio.sleep(0, "done")) == "done"

    asyncio.run(scenario())


def test_a_task_that_is_cancelled_and_interrupted_at_once_is_cancelled() -> None:
    """A SIGTERM that comes with a Ctrl-C must not be lost; otherwise the process must be killed."""

    async def scenario() -> None:
        cancellation = Cancellation()
        life = asyncio.create_task(cancellation.run(never()))
        await asyncio.sleep(0)
        cancellation.cancel("lead")
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await life

    asyncio.run(scenario())


def test_a_cancelled_task_leaves_no_work_behind() -> None:
    async def scenario() -> None:
        cancellation = Cancellation()
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await never()
            finally:
                ended.set()

        life = asyncio.create_task(cancellation.run(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await life
        await asyncio.wait_for(ended.wait(), timeout=20)

    asyncio.run(scenario())
