"""Clocks that are never set back; a deadline uses the clock that it was made with."""

from __future__ import annotations

import math
import sys
import time

import pytest

from teamd import clocks
from teamd.clocks import Deadline


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a clock for each")
def test_one_clock_counts_a_suspend_and_the_other_does_not() -> None:
    """A restart is due in real time; silence is judged by the time of the process."""
    for clock, number in (
        (clocks.elapsed, time.CLOCK_BOOTTIME),
        (clocks.awake, time.CLOCK_MONOTONIC),
    ):
        assert time.clock_gettime(number) <= clock() <= time.clock_gettime(number)


def test_a_deadline_is_measured_by_its_own_clock() -> None:
    now = 5.0
    deadline = Deadline.after(10, clock=lambda: now)
    assert deadline.left == 10
    now = 16.0
    assert deadline.left == -1


def test_a_deadline_may_be_infinite() -> None:
    assert Deadline.after(math.inf).left == math.inf


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names its boots")
def test_a_boot_has_one_id() -> None:
    assert clocks.boot() == clocks.boot()
    assert len(clocks.boot() or "") == 36


def test_a_time_on_another_day_is_shown_with_its_date() -> None:
    now = time.time()
    for days in (-1, 0, 1):
        then = time.localtime(now + days * 86_400)
        assert clocks.time_of_day(now + days * 86_400) == time.strftime(
            "%Y-%m-%d %H:%M" if days else "%H:%M", then
        )
