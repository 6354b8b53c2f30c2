"""Who waits for whom, so that what many requests begin with is written to the cache once."""

from __future__ import annotations

from teamd.supervisor.slots import LONGEST_WAIT_SECONDS, Warmth


def test_others_wait_until_the_first_reply_begins() -> None:
    warmth = Warmth()
    assert warmth.cold_seconds("tools") == 0
    warmth.granted(1, "tools")
    assert 0 < warmth.cold_seconds("tools") <= LONGEST_WAIT_SECONDS
    assert warmth.cold_seconds("other tools") == 0
    warmth.begun(1)
    assert warmth.cold_seconds("tools") == 0
    warmth.granted(2, "tools")
    assert warmth.cold_seconds("tools") == 0, "it is in the cache by now"


def test_a_call_that_came_to_nothing_leaves_the_next_one_to_be_the_first() -> None:
    warmth = Warmth()
    warmth.granted(1, "tools")
    warmth.ended(1)
    assert warmth.cold_seconds("tools") == 0
    warmth.granted(2, "tools")
    assert warmth.cold_seconds("tools") > 0
    warmth.begun(1)
    assert warmth.cold_seconds("tools") > 0, "nobody knows of the first any more"


def test_where_nothing_is_cached_nobody_waits() -> None:
    warmth = Warmth()
    warmth.granted(1, "")
    assert warmth.cold_seconds("") == 0


def test_a_server_that_is_slow_to_begin_is_waited_for_once() -> None:
    warmth = Warmth()
    warmth.granted(1, "tools")
    first = warmth.cold_seconds("tools")
    warmth.granted(2, "tools")  # once the time of the first was over, say
    assert warmth.cold_seconds("tools") <= first
    warmth.ended(2)
    assert 0 < warmth.cold_seconds("tools") <= first
    warmth.ended(1)
    assert warmth.cold_seconds("tools") == 0
