"""The bell, which wakes an idle teammate."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from teamd.agent.wakeup import HeartbeatSender, SupervisorGone, Wakeup, hibernate
from teamd.team.heartbeat import Heartbeat
from tests.unit.life import NEVER_SECONDS, quiet_pulse
from tests.waiting import until


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    """Reader and writer; a test that closes the writer removes it from the list."""
    ends = list(os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
    yield ends
    for end in ends:
        os.close(end)


async def rung(wakeup: Wakeup, seconds: float = NEVER_SECONDS) -> None:
    """Wait for a ring, with a bound that only a broken bell reaches."""
    await asyncio.wait_for(wakeup.wait(seconds), timeout=20)


def test_a_ring_ends_the_wait_and_is_consumed(pipe: list[int]) -> None:
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


def test_a_ring_before_the_wait_is_not_lost(pipe: list[int]) -> None:
    """Mail may arrive between the look and the wait."""
    os.write(pipe[1], b"!")
    asyncio.run(rung(Wakeup(pipe[0], pulse=quiet_pulse(), recheck_seconds=NEVER_SECONDS)))


def test_a_waiting_teammate_is_at_rest(pipe: list[int]) -> None:
    """Otherwise an idle teammate would use CPU time, and its silence be taken for a hang."""
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


def test_many_rings_count_as_one(pipe: list[int]) -> None:
    os.write(pipe[1], b"!" * 10_000)
    wakeup = Wakeup(pipe[0], pulse=quiet_pulse(), recheck_seconds=NEVER_SECONDS)
    wakeup.reset()
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)


@pytest.mark.parametrize(
    ("recheck", "seconds"), [(0.01, NEVER_SECONDS), (NEVER_SECONDS, 0.01), (NEVER_SECONDS, 0.0)]
)
def test_without_a_ring_there_is_a_periodic_check(
    pipe: list[int], recheck: float, seconds: float
) -> None:
    asyncio.run(rung(Wakeup(pipe[0], pulse=quiet_pulse(), recheck_seconds=recheck), seconds))


def test_the_end_of_the_supervisor_is_noticed(pipe: list[int]) -> None:
    """Otherwise a teammate could live on alone, without a process to stop it."""

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


def test_a_hibernating_process_checks_for_work_at_first_and_at_each_ring(pipe: list[int]) -> None:
    """Each look is a sign of life: a ring without work must not make it look stuck."""
    heartbeat, looks = Heartbeat(), list[bool]()

    def wanted() -> bool:
        looks.append(heartbeat.resting)
        os.write(pipe[1], b"!")  # before the wait, as if it had arrived in the middle of the look
        return len(looks) == 3

    hibernate(pipe[0], heartbeat, wanted)
    assert looks == [False, True, True]
    assert not heartbeat.resting


def test_a_hibernating_process_ends_with_its_supervisor(pipe: list[int]) -> None:
    os.close(pipe.pop())
    with pytest.raises(SupervisorGone):
        hibernate(pipe[0], Heartbeat(), lambda: False)
