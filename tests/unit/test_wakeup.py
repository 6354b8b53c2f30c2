"""The bell: what wakes an idle teammate."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from teamd.agent.wakeup import HeartbeatSender, SupervisorGone, Wakeup, after_next_tick, hibernate
from teamd.errors import StoreError
from teamd.team.heartbeat import Heartbeat
from tests.unit.life import NEVER_SECONDS, quiet_pulse
from tests.waiting import until


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    """Reader and writer; a test that closes the writer takes it out."""
    ends = list(os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
    yield ends
    for end in ends:
        os.close(end)


async def rung(wakeup: Wakeup, seconds: float = NEVER_SECONDS) -> None:
    """Wait for a ring, with a bound that only a broken bell reaches."""
    await asyncio.wait_for(wakeup.wait(seconds), timeout=20)


def test_a_ring_ends_the_waiting_and_is_forgotten(pipe: list[int]) -> None:
    async def scenario() -> None:
        wakeup = Wakeup(pipe[0], pulse=quiet_pulse(), recheck_seconds=NEVER_SECONDS)
        waiting = asyncio.create_task(rung(wakeup))
        os.write(pipe[1], b"!!!")
        await waiting
        again = asyncio.create_task(wakeup.wait())
        done, _ = await asyncio.wait([again], timeout=0.2)
        assert done == set()
        os.write(pipe[1], b"!")
        await asyncio.wait_for(again, timeout=20)

    asyncio.run(scenario())


def test_a_ring_before_the_waiting_counts(pipe: list[int]) -> None:
    """Mail may come between the look and the waiting."""
    os.write(pipe[1], b"!")
    asyncio.run(rung(Wakeup(pipe[0], pulse=quiet_pulse(), recheck_seconds=NEVER_SECONDS)))


def test_who_waits_for_a_ring_rests(pipe: list[int]) -> None:
    """Otherwise an idle teammate would compute, and its silence be taken for a hang."""
    vitals = Heartbeat()

    async def scenario() -> None:
        pulse = HeartbeatSender(vitals, every_seconds=NEVER_SECONDS)
        wakeup = Wakeup(pipe[0], pulse=pulse, recheck_seconds=NEVER_SECONDS)
        waiting = asyncio.create_task(rung(wakeup))
        await until(lambda: vitals.resting, what="it rests")
        os.write(pipe[1], b"!")
        await waiting
        assert not vitals.resting

    asyncio.run(scenario())


def test_many_rings_are_one(pipe: list[int]) -> None:
    os.write(pipe[1], b"!" * 10_000)
    wakeup = Wakeup(pipe[0], pulse=quiet_pulse(), recheck_seconds=NEVER_SECONDS)
    wakeup.reset()
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)


@pytest.mark.parametrize(
    ("recheck", "seconds"), [(0.01, NEVER_SECONDS), (NEVER_SECONDS, 0.01), (NEVER_SECONDS, 0.0)]
)
def test_without_a_ring_it_is_looked_now_and_then(
    pipe: list[int], recheck: float, seconds: float
) -> None:
    asyncio.run(rung(Wakeup(pipe[0], pulse=quiet_pulse(), recheck_seconds=recheck), seconds))


def test_a_supervisor_that_has_gone_is_noticed(pipe: list[int]) -> None:
    """Nobody would stop a teammate that lives on alone."""

    async def scenario() -> None:
        waiting = asyncio.create_task(
            rung(Wakeup(pipe[0], pulse=quiet_pulse(), recheck_seconds=NEVER_SECONDS))
        )
        await asyncio.sleep(0)
        os.write(pipe[1], b"!")
        os.close(pipe.pop())
        with pytest.raises(SupervisorGone):
            await waiting

    asyncio.run(scenario())


def test_one_that_hibernates_looks_at_first_and_at_each_ring(pipe: list[int]) -> None:
    """Each look shows life: it may be rung for nothing, and is not stuck for that."""
    heartbeat, looks = Heartbeat(), list[bool]()

    def wanted() -> bool:
        looks.append(heartbeat.resting)
        os.write(pipe[1], b"!")  # before the wait, as if it had come in the middle of the look
        return len(looks) == 3

    hibernate(pipe[0], heartbeat, wanted)
    assert looks == [False, True, True]
    assert not heartbeat.resting


def test_one_that_hibernates_ends_with_its_supervisor(pipe: list[int]) -> None:
    os.close(pipe.pop())
    with pytest.raises(SupervisorGone):
        hibernate(pipe[0], Heartbeat(), lambda: False)


def test_what_is_done_soon_is_done_once_while_the_block_goes_on() -> None:
    done: list[str] = []

    async def scenario() -> None:
        with after_next_tick(lambda: done.append("it")):
            assert not done, "what the block is about comes first"
            await until(lambda: done)
        assert done == ["it"]

    asyncio.run(scenario())


def test_what_is_done_soon_is_done_by_the_end_of_the_block() -> None:
    done: list[str] = []

    async def scenario() -> None:
        with pytest.raises(KeyError), after_next_tick(lambda: done.append("it")):
            raise KeyError
        assert done == ["it"]

    asyncio.run(scenario())


def test_what_cannot_be_written_soon_is_tried_again_and_told_at_the_end() -> None:
    """Else a teammate would work on whose mail is locked or whose disk is full."""
    tries: list[str] = []

    def fail() -> None:
        tries.append("it")
        raise StoreError("the disk is full")

    async def scenario() -> None:
        with pytest.raises(StoreError, match="full"), after_next_tick(fail):
            await until(lambda: tries)
        assert len(tries) == 2

    asyncio.run(scenario())
