"""Who counts as stuck: silence is judged only where a sign of life was due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from teamd import clocks
from teamd.agent.pulse import Pulse
from teamd.supervisor.life import no_progress
from teamd.supervisor.vigil import LONGEST_BEAT_SECONDS, Silence, Vigil
from teamd.vitals import Vitals
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

TEN = Silence(seconds=10.0, restart=False)
OFF = Silence(seconds=0.0, restart=False)


@pytest.fixture
def vitals() -> Iterator[Vitals]:
    made = Vitals()
    yield made
    made.close()


def test_silence_is_too_long_after_its_time_and_not_before(vitals: Vitals) -> None:
    vigil, begun = Vigil(vitals), vitals.heard
    assert vigil.due(TEN) == begun + 10
    assert [vigil.silent(begun + s, TEN) for s in (0, 9.9, 10.1, 40, 1000)] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_a_sign_of_life_ends_it(vitals: Vitals) -> None:
    vigil, begun = Vigil(vitals), vitals.heard
    assert vigil.silent(begun + 10.1, TEN)
    vitals.beat()
    assert not vigil.silent(vitals.heard + 9, TEN)


def test_who_rests_may_be_silent_until_it_is_rung(vitals: Vitals) -> None:
    """An idle teammate computes nothing; one that mail does not wake hangs."""
    vigil = Vigil(vitals)
    vitals.rest()
    now = vitals.heard
    assert vigil.due(TEN) is None
    assert not vigil.silent(now + 9, TEN)
    assert not vigil.silent(now + 1000, TEN)
    vigil.ring(now + 1000)
    vigil.ring(now + 1009)
    assert vigil.due(TEN) == now + 1010, "the first ring counts"
    assert vigil.silent(now + 1011, TEN)


def test_who_was_rung_and_came_may_rest_again(vitals: Vitals) -> None:
    vigil = Vigil(vitals)
    vitals.rest()
    vigil.ring(clocks.awake())
    vitals.beat()
    vitals.rest()
    assert vigil.due(TEN) is None


def test_a_supervisor_that_was_stopped_itself_blames_nobody_for_it(vitals: Vitals) -> None:
    """A container that is frozen for a night must not have its team killed in the morning."""
    vigil, begun = Vigil(vitals), vitals.heard
    assert not vigil.silent(begun + 1, TEN)
    assert not vigil.silent(begun + 30_000, TEN)
    assert not vigil.silent(begun + 30_009, TEN)
    assert vigil.silent(begun + 30_011, TEN), "but now it had its time"


def test_nobody_is_stuck_where_it_is_switched_off(vitals: Vitals) -> None:
    vigil = Vigil(vitals)
    assert vigil.due(OFF) is None
    assert not vigil.silent(vitals.heard + 1_000_000, OFF)


@pytest.mark.parametrize(
    ("seconds", "beat"), [(0.0, LONGEST_BEAT_SECONDS), (1.0, 0.25), (300.0, 60.0), (9000.0, 60.0)]
)
def test_life_is_shown_several_times_in_the_time_of_silence(seconds: float, beat: float) -> None:
    """One beat that a busy machine delays must not cost a process."""
    assert Silence(seconds=seconds, restart=True).beat_seconds == beat


def test_a_pulse_beats_while_one_works_and_never_while_one_rests(vitals: Vitals) -> None:
    async def scenario() -> None:
        pulse = Pulse(vitals, every_seconds=0.001)
        pulse.beat()
        first = vitals.heard
        await until(lambda: vitals.heard > first, what="a second beat by itself")
        with pulse.resting():
            rested = vitals.heard
            await asyncio.sleep(0.02)  # twenty beats' time: none may come
            assert (vitals.resting, vitals.heard) == (True, rested)
        await until(lambda: vitals.heard > rested, what="it beats again")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (60.0, "1 min"), (900.0, "15 min"), (90.0, "1.5 min")]
)
def test_how_long_nothing_went_on_is_told_in_few_words(seconds: float, text: str) -> None:
    assert no_progress(seconds) == f"no progress for {text}"
