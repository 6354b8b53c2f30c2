"""The concurrency limit: it falls when the server refuses, rises again, and obeys the settings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from teamd.models import RetryPolicy
from teamd.supervisor.slots import ConcurrencyLimit

POLICY = RetryPolicy(first_seconds=0.01, longest_seconds=60)


def limit(most: int) -> ConcurrencyLimit:
    return ConcurrencyLimit(lambda: most, lambda: POLICY)


class Server:
    """A server that answers `room` calls at once and refuses all others.

    Attributes:
        refused: the number of calls that it has refused so far.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.refused = 0
        self._number = 0

    def answer(self, slots: ConcurrencyLimit) -> None:
        """Make as many calls as the limit allows, and answer them."""
        calls = slots.now
        last = self._number = self._number + calls
        for call in range(calls):
            if call < self.room:
                slots.served()
            else:
                self.refused += 1
                slots.refused(last - call, None, last=last, under_way=calls - call - 1)


def test_it_approaches_the_servers_limit_and_rarely_exceeds_it() -> None:
    slots, server = limit(100), Server(20)
    for _ in range(200):
        server.answer(slots)
    assert 18 <= slots.now <= 21
    assert server.refused <= 80 + 200 / 10


def test_it_recovers_when_the_server_accepts_more_again() -> None:
    slots, server = limit(8), Server(1)
    for _ in range(10):
        server.answer(slots)
    assert slots.now <= 2
    server.room = 100
    for _ in range(200):
        server.answer(slots)
    assert slots.now == 8


@given(st.integers(-1, 9), st.lists(st.none() | st.floats(0, 1e9)))
def test_it_stays_within_its_bounds(most: int, ends: list[float | None]) -> None:
    """For any sequence of reports."""
    slots = limit(most)
    for number, end in enumerate(ends):
        if end is None:
            slots.served()
        else:
            slots.refused(number, end, last=number, under_way=0)
        assert 1 <= slots.now <= max(1, most)
        assert 0 <= slots.pause_seconds <= 120


def test_a_server_that_refuses_for_days_is_still_asked() -> None:
    """The pause doubles up to a bound that a float can hold."""
    slots = limit(8)
    for number in range(2000):
        slots.refused(number, None, last=number, under_way=0)
    assert slots.pause_seconds <= 60


def test_without_a_retry_time_the_next_call_waits_for_the_end_of_another_call() -> None:
    slots = limit(8)
    slots.refused(1, None, last=8, under_way=7)
    assert (slots.now, slots.pause_seconds) == (7, 0)
    slots.refused(2, 30.0, last=8, under_way=6)
    assert slots.now == 6
    assert 29 <= slots.pause_seconds <= 31


def test_the_calls_in_progress_become_the_limit_and_a_second_refusal_pauses() -> None:
    """Otherwise a call that is refused at once, again and again, quickly uses up its attempts."""

    class Fixed(RetryPolicy):
        def seconds(self, attempt: int, asked_seconds: float | None) -> float:  # noqa: ARG002
            return 60.0

    slots = ConcurrencyLimit(lambda: 16, Fixed)
    slots.refused(1, None, last=1, under_way=1)
    assert slots.now == 1
    assert slots.pause_seconds == 0
    slots.refused(2, None, last=2, under_way=1)
    assert slots.pause_seconds > 0
