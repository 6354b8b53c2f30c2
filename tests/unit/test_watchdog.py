"""Who counts as stuck: silence is judged only where a sign of life was due."""

from __future__ import annotations

import asyncio

import pytest

from teamd import clocks
from teamd.agent.wakeup import HeartbeatSender
from teamd.team.heartbeat import LONGEST_BEAT_SECONDS, Heartbeat, HeartbeatPolicy, Watchdog
from tests.waiting import until

TEN = HeartbeatPolicy(seconds=10.0, restart=False)
OFF = HeartbeatPolicy(seconds=0.0, restart=False)


@pytest.fixture
def heartbeat() -> Heartbeat:
    return Heartbeat()


def test_silence_is_too_long_after_its_time_and_not_before(heartbeat: Heartbeat) -> None:
    watchdog, begun = Watchdog(heartbeat, TEN), heartbeat.heard
    assert watchdog.due() == begun + 10
    assert [watchdog.expired(begun + s) for s in (0, 9.9, 10.1, 40, 1000)] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_a_sign_of_life_ends_it(heartbeat: Heartbeat) -> None:
    watchdog, begun = Watchdog(heartbeat, TEN), heartbeat.heard
    assert watchdog.expired(begun + 10.1)
    heartbeat.beat()
    assert not watchdog.expired(heartbeat.heard + 9)


def test_who_rests_may_be_silent_until_it_is_rung(heartbeat: Heartbeat) -> None:
    """An idle teammate computes nothing; one that mail does not wake hangs."""
    watchdog = Watchdog(heartbeat, TEN)
    heartbeat.rest()
    now = heartbeat.heard
    assert watchdog.due() is None
    assert not watchdog.expired(now + 9)
    assert not watchdog.expired(now + 1000)
    watchdog.ring(now + 1000)
    watchdog.ring(now + 1009)
    assert watchdog.due() == now + 1010, "the first ring counts"
    assert watchdog.expired(now + 1011)


def test_who_was_rung_and_came_may_rest_again(heartbeat: Heartbeat) -> None:
    watchdog = Watchdog(heartbeat, TEN)
    heartbeat.rest()
    watchdog.ring(clocks.awake())
    heartbeat.beat()
    heartbeat.rest()
    assert watchdog.due() is None


def test_a_supervisor_that_was_stopped_itself_blames_nobody_for_it(heartbeat: Heartbeat) -> None:
    """A container that is frozen for a night must not have its team killed in the morning."""
    watchdog, begun = Watchdog(heartbeat, TEN), heartbeat.heard
    assert not watchdog.expired(begun + 1)
    assert not watchdog.expired(begun + 30_000)
    assert not watchdog.expired(begun + 30_009)
    assert watchdog.expired(begun + 30_011), "but now it had its time"


def test_nobody_is_stuck_where_it_is_switched_off(heartbeat: Heartbeat) -> None:
    watchdog = Watchdog(heartbeat, OFF)
    assert watchdog.due() is None
    assert not watchdog.expired(heartbeat.heard + 1_000_000)


@pytest.mark.parametrize(
    ("seconds", "beat"), [(0.0, LONGEST_BEAT_SECONDS), (1.0, 0.25), (300.0, 60.0), (9000.0, 60.0)]
)
def test_life_is_shown_several_times_in_the_time_of_silence(seconds: float, beat: float) -> None:
    """One beat that a busy machine delays must not cost a process."""
    assert HeartbeatPolicy(seconds=seconds, restart=True).beat_seconds == beat


def test_a_pulse_beats_while_one_works_and_never_while_one_rests(heartbeat: Heartbeat) -> None:
    async def scenario() -> None:
        pulse = HeartbeatSender(heartbeat, every_seconds=0.001)
        pulse.beat()
        first = heartbeat.heard
        await until(lambda: heartbeat.heard > first, what="a second beat by itself")
        with pulse.resting():
            rested = heartbeat.heard
            await asyncio.sleep(0.02)  # twenty beats' time: none may come
            assert (heartbeat.resting, heartbeat.heard) == (True, rested)
        await until(lambda: heartbeat.heard > rested, what="it beats again")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (60.0, "1 min"), (900.0, "15 min"), (90.0, "1.5 min")]
)
def test_how_long_nothing_went_on_is_told_in_few_words(seconds: float, text: str) -> None:
    assert HeartbeatPolicy(seconds=seconds, restart=True).violation == f"no progress for {text}"


def test_a_ring_counts_although_nobody_looked_since_the_last_one_was_heard() -> None:
    """Looks are rare: a teammate is rung, works, rests and is rung again between two of them."""
    heartbeat = Heartbeat()
    watchdog = Watchdog(heartbeat, HeartbeatPolicy(seconds=1.0, restart=False))
    watchdog.ring(clocks.awake())
    heartbeat.rest()
    again = clocks.awake()
    watchdog.ring(again)
    assert watchdog.due() == again + 1.0
