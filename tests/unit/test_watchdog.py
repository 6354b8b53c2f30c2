"""Stuck teammates: silence counts only while a sign of life is due. teamd's own signs of life."""

from __future__ import annotations

import asyncio
import os

import pytest

from teamd import clocks
from teamd.agent.wakeup import HeartbeatSender
from teamd.service import watchdog_seconds
from teamd.team.heartbeat import LONGEST_BEAT_SECONDS, Heartbeat, HeartbeatPolicy, Watchdog
from tests.waiting import until

TEN = HeartbeatPolicy(seconds=10.0, restart=False)
OFF = HeartbeatPolicy(seconds=0.0, restart=False)


@pytest.fixture
def heartbeat() -> Heartbeat:
    return Heartbeat()


def test_silence_is_too_long_only_after_the_set_time(heartbeat: Heartbeat) -> None:
    watchdog, begun = Watchdog(heartbeat, TEN), heartbeat.heard
    assert watchdog.due() == begun + 10
    assert [watchdog.expired(begun + s) for s in (0, 9.9, 10.1, 40, 1000)] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_a_sign_of_life_ends_the_silence(heartbeat: Heartbeat) -> None:
    watchdog, begun = Watchdog(heartbeat, TEN), heartbeat.heard
    assert watchdog.expired(begun + 10.1)
    heartbeat.beat()
    assert not watchdog.expired(heartbeat.heard + 9)


def test_a_resting_teammate_may_be_silent_until_it_is_rung(heartbeat: Heartbeat) -> None:
    """An idle teammate uses no CPU time; one that mail does not wake has hung."""
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


def test_a_teammate_that_answered_a_ring_may_rest_again(heartbeat: Heartbeat) -> None:
    watchdog = Watchdog(heartbeat, TEN)
    heartbeat.rest()
    watchdog.ring(clocks.awake())
    heartbeat.beat()
    heartbeat.rest()
    assert watchdog.due() is None


def test_a_supervisor_that_was_itself_suspended_does_not_report_teammates_as_stuck(
    heartbeat: Heartbeat,
) -> None:
    """A container that was frozen overnight must not have its team killed in the morning."""
    watchdog, begun = Watchdog(heartbeat, TEN), heartbeat.heard
    assert not watchdog.expired(begun + 1)
    assert not watchdog.expired(begun + 30_000)
    assert not watchdog.expired(begun + 30_009)
    assert watchdog.expired(begun + 30_011), "but now it had its time"


def test_no_teammate_is_stuck_if_the_check_is_switched_off(heartbeat: Heartbeat) -> None:
    watchdog = Watchdog(heartbeat, OFF)
    assert watchdog.due() is None
    assert not watchdog.expired(heartbeat.heard + 1_000_000)


@pytest.mark.parametrize(
    ("seconds", "beat"), [(0.0, LONGEST_BEAT_SECONDS), (1.0, 0.25), (300.0, 60.0), (9000.0, 60.0)]
)
def test_several_signs_of_life_fit_into_the_time_of_silence(seconds: float, beat: float) -> None:
    """One beat that a busy machine delays must not cost a process."""
    assert HeartbeatPolicy(seconds=seconds, restart=True).beat_seconds == beat


def test_the_heartbeat_is_sent_during_work_and_never_at_rest(heartbeat: Heartbeat) -> None:
    async def scenario() -> None:
        pulse = HeartbeatSender(heartbeat, every_seconds=0.001)
        pulse.beat()
        first = heartbeat.heard
        await until(lambda: heartbeat.heard > first, what="a second beat by itself")
        with pulse.resting():
            rested = heartbeat.heard
            await asyncio.sleep(0.02)  # the time of twenty beats: none may come
            assert (heartbeat.resting, heartbeat.heard) == (True, rested)
        await until(lambda: heartbeat.heard > rested, what="it beats again")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (60.0, "1 min"), (900.0, "15 min"), (90.0, "1.5 min")]
)
def test_the_time_without_progress_is_described_in_few_words(seconds: float, text: str) -> None:
    assert HeartbeatPolicy(seconds=seconds, restart=True).violation == f"no progress for {text}"


def test_a_ring_counts_even_if_the_last_answer_was_not_seen() -> None:
    """Looks are rare: a teammate may be rung, work, rest and be rung again between two of them."""
    heartbeat = Heartbeat()
    watchdog = Watchdog(heartbeat, HeartbeatPolicy(seconds=1.0, restart=False))
    watchdog.ring(clocks.awake())
    heartbeat.rest()
    again = clocks.awake()
    watchdog.ring(again)
    assert watchdog.due() == again + 1.0


@pytest.mark.parametrize(
    ("limit", "whose", "seconds"),
    [
        ("400000", None, 0.2),
        ("400000", 0, 0.2),
        ("400000", 1, None),  # of another process
        ("0", None, None),
        ("soon", None, None),
    ],
)
def test_teamd_notifies_the_service_manager_in_half_of_its_limit(
    monkeypatch: pytest.MonkeyPatch, limit: str, whose: int | None, seconds: float | None
) -> None:
    """At the limit itself, the service manager would kill it."""
    monkeypatch.setenv("WATCHDOG_USEC", limit)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    if whose is not None:
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + whose))
    assert watchdog_seconds() == seconds
