"""The time of a crashed teammate's restart, and the number of crashes that ends restarts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from teamd.settings.schema import Supervision
from teamd.supervisor.lifecycle import LONGEST_DELAY_SECONDS, RestartCounter

LIMIT = Supervision(crashes=5, within_seconds=60)


def test_the_first_restart_is_immediate_and_each_later_one_is_delayed_more() -> None:
    crashes = RestartCounter()
    delays = [crashes.note(float(moment), LIMIT) for moment in range(5)]
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6]


def test_one_crash_above_the_limit_is_too_many() -> None:
    crashes = RestartCounter()
    delays = [crashes.note(10.0, LIMIT) for _ in range(6)]
    assert None not in delays[:5]
    assert delays[5] is None


def test_old_crashes_are_no_longer_counted() -> None:
    """A teammate that crashes once an hour is restarted without end."""
    crashes = RestartCounter()
    assert {crashes.note(hour * 3600.0, LIMIT) for hour in range(100)} == {0.1}


def test_the_limit_may_be_any_number() -> None:
    """The limit is a setting, and the delay doubles each time: a float ends at 2 ** 1024."""
    crashes = RestartCounter()
    limit = Supervision(crashes=1_000_000, within_seconds=60)
    delays = [crashes.note(1.0, limit) for _ in range(2000)]
    assert delays[-1] == LONGEST_DELAY_SECONDS


def test_a_request_of_a_person_resets_the_count() -> None:
    crashes = RestartCounter()
    for _ in range(6):
        crashes.note(1.0, LIMIT)
    crashes.forgive()
    assert crashes.note(1.0, LIMIT) == 0.1


@given(
    gaps=st.lists(st.floats(0, 100), max_size=60),
    crashes=st.integers(1, 40),
    within=st.floats(0.1, 1000),
)
def test_a_teammate_is_given_up_exactly_when_too_many_crashes_are_in_the_window(
    gaps: list[float], crashes: int, within: float
) -> None:
    limit = Supervision(crashes=crashes, within_seconds=within)
    noted, moments, now = RestartCounter(), [], 0.0
    for gap in gaps:
        now += gap
        moments.append(now)
        recent = [moment for moment in moments if now - moment <= within]
        delay = noted.note(now, limit)
        assert (delay is None) == (len(recent) > crashes)
        assert delay is None or 0.1 <= delay <= LONGEST_DELAY_SECONDS
