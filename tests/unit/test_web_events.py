"""The events of the page: snapshots, ids for resuming, and slow readers."""

from __future__ import annotations

import asyncio
import json

from teamctl.web.events import KEPT, MOST_WAITING, SNAPSHOT, EventLog, Reader, StateEvent


def taken(reader: Reader) -> list[StateEvent]:
    """Return the events that a reader gets without waiting."""

    async def take() -> list[StateEvent]:
        found: list[StateEvent] = []

        async def read() -> None:
            async for event in reader.events():
                found.append(event)  # noqa: PERF401 -- kept when it is cut off by the timeout

        task = asyncio.create_task(read())
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        return found

    return asyncio.run(take())


def test_a_new_reader_gets_a_snapshot_of_all() -> None:
    log = EventLog()
    log.publish("team", {"name": "x"})
    log.publish("mail", 3)
    (event,) = taken(log.enter(""))
    assert event.name == SNAPSHOT
    assert json.loads(event.data) == {"team": {"name": "x"}, "mail": 3}


def test_a_returning_reader_gets_the_missed_events() -> None:
    log = EventLog()
    log.publish("team", 1)
    (first,) = taken(log.enter(""))
    assert taken(log.enter(first.id)) == []
    log.publish("team", 2)
    log.publish("mail", 3)
    missed = taken(log.enter(first.id))
    assert [(event.name, event.data) for event in missed] == [("team", "2"), ("mail", "3")]
    assert taken(log.enter(missed[-1].id)) == []


def test_an_unchanged_value_makes_no_event() -> None:
    log = EventLog()
    log.publish("team", 1)
    reader = log.enter("")
    log.publish("team", 1)
    assert len(taken(reader)) == 1


def test_ids_of_another_server_and_invalid_ids_lead_to_a_snapshot() -> None:
    log, other = EventLog(), EventLog()
    for one in (log, other):
        one.publish("team", 1)
    (elsewhere,) = taken(other.enter(""))
    numbers = ("", "99", "9" * 99, "-1")
    for unknown in (elsewhere.id, "x", "-", *(f"{log.boot}-{number}" for number in numbers)):
        assert [event.name for event in taken(log.enter(unknown))] == [SNAPSHOT]


def test_a_reader_that_was_away_for_too_long_gets_a_snapshot() -> None:
    log = EventLog()
    log.publish("team", 0)
    (first,) = taken(log.enter(""))
    for number in range(1, KEPT + 2):
        log.publish("team", number)
    (event,) = taken(log.enter(first.id))
    assert (event.name, json.loads(event.data)) == (SNAPSHOT, {"team": KEPT + 1})


def test_no_reader_resumes_after_a_gap_in_the_events() -> None:
    log = EventLog()
    log.publish("team", 1)
    (first,) = taken(log.enter(""))
    log.forget()
    assert [event.name for event in taken(log.enter(first.id))] == [SNAPSHOT]


def test_a_slow_reader_is_cut_off_and_does_not_delay_others() -> None:
    log = EventLog()
    slow, quick = log.enter(""), log.enter("")
    taken(quick)
    for number in range(MOST_WAITING + 5):
        log.publish("team", number)
        assert taken(quick)[-1].data == str(number)
    assert taken(slow) == []

    async def rest() -> list[StateEvent]:
        return [event async for event in slow.events()]  # the stream of events ends

    assert asyncio.run(rest()) == []
