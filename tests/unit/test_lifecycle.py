"""The table of a teammate's life, every cell of it, and the limit on restarts."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.settings.schema import Supervision
from teamd.supervisor.lifecycle import (
    LONGEST_DELAY_SECONDS,
    Action,
    LifeEvent,
    RestartCounter,
    State,
    next_step,
)

ASLEEP = {State.ABSENT, State.WAITING}
WANTED = {State.RUNNING, State.STUCK}
ALIVE = WANTED | {State.STOPPING, State.KILLED}
ENDINGS = {LifeEvent.CRASHED, LifeEvent.HOPELESS}
LIMIT = Supervision(crashes=5, within_seconds=60)
LEAVING = (State.STOPPING, State.KILLED)  # in this order: workers must find the same tests


def run(state: State, *events: LifeEvent) -> tuple[State, list[Action]]:
    """Return the last state, and the actions."""
    actions = []
    for event in events:
        state, action = next_step(state, event)
        actions.append(action)
    return state, actions


@pytest.mark.parametrize(("state", "event"), list(product(State, LifeEvent)))
def test_each_cell_of_the_state_table_keeps_the_invariants(state: State, event: LifeEvent) -> None:
    """At most one process; none is forgotten; every request is answered."""
    after, action = next_step(state, event)
    due = state is State.WAITING and event is LifeEvent.DUE
    assert (action is Action.FORK) == ((state in ASLEEP and event is LifeEvent.WANTED) or due)
    assert (state in ASLEEP and after in ALIVE) == (action is Action.FORK)
    ended = event in ENDINGS or (event is LifeEvent.HIBERNATED and state in LEAVING)
    assert (state in ALIVE and after in ASLEEP) == (state in ALIVE and ended)
    wanted = state in WANTED
    assert (action is Action.HIBERNATE) == (wanted and event is LifeEvent.HIBERNATED)
    assert (action is Action.HIBERNATE) <= (after is State.RUNNING)
    assert (action is Action.DELAY) == (wanted and event is LifeEvent.CRASHED)
    assert (action is Action.FAIL) == (wanted and event is LifeEvent.HOPELESS)
    assert (action is Action.TERMINATE) == (wanted and event is LifeEvent.UNWANTED)
    assert (action is Action.KILL) == (
        state not in ASLEEP | {State.RUNNING} and event is LifeEvent.DUE
    )
    assert (action is Action.KILL) <= (after in {State.KILLED, State.STUCK})
    assert (action is Action.REPORT) == (state is State.RUNNING and event is LifeEvent.SILENT)
    assert (action is Action.RELIEVE) == (state is State.STUCK and event is LifeEvent.HEARD)
    assert (action is Action.REPORT) == (after is State.STUCK and state is not State.STUCK)
    assert (action is Action.DELAY) <= (after is State.WAITING)
    if action is Action.NOTHING:
        assert after is state
    if action in (Action.SETTLE, Action.FAIL):
        assert after is State.ABSENT


@pytest.mark.parametrize("state", State)
def test_an_unwanted_teammate_ends_in_any_state(state: State) -> None:
    """Even if it hangs: when overdue it is killed, killed again, and settled after its end."""
    events = (LifeEvent.UNWANTED, LifeEvent.DUE, LifeEvent.DUE, LifeEvent.CRASHED)
    after, actions = run(state, *events)
    assert after is State.ABSENT
    assert Action.SETTLE in actions
    assert Action.FORK not in actions


@pytest.mark.parametrize("state", LEAVING)
def test_a_teammate_that_is_being_shut_down_is_not_started_again(state: State) -> None:
    """A second process of the same name would take the mail of the ending one."""
    assert run(state, LifeEvent.WANTED) == (state, [Action.NOTHING])


@pytest.mark.parametrize("state", LEAVING)
def test_a_teammate_that_hibernates_during_its_shutdown_counts_as_ended(state: State) -> None:
    assert run(state, LifeEvent.HIBERNATED) == (State.ABSENT, [Action.SETTLE])


def test_a_stuck_teammate_is_reported_once_and_returns_either_way() -> None:
    """Without help, or killed if the settings say so and restarted as after a crash."""
    _, actions = run(
        State.RUNNING, LifeEvent.SILENT, LifeEvent.SILENT, LifeEvent.HEARD, LifeEvent.HEARD
    )
    assert actions == [
        Action.REPORT,
        Action.NOTHING,
        Action.RELIEVE,
        Action.NOTHING,
    ]
    _, actions = run(
        State.RUNNING, LifeEvent.SILENT, LifeEvent.DUE, LifeEvent.CRASHED, LifeEvent.DUE
    )
    assert actions == [
        Action.REPORT,
        Action.KILL,
        Action.DELAY,
        Action.FORK,
    ]


@pytest.mark.parametrize("event", [LifeEvent.SILENT, LifeEvent.HEARD])
@pytest.mark.parametrize("state", [State.STOPPING, State.KILLED])
def test_silence_is_ignored_while_a_teammate_is_being_shut_down(
    state: State, event: LifeEvent
) -> None:
    """Its end already has a deadline."""
    assert run(state, event) == (state, [Action.NOTHING])


def test_a_complete_life_cycle() -> None:
    _, actions = run(
        State.ABSENT,
        LifeEvent.WANTED,
        LifeEvent.CRASHED,
        LifeEvent.DUE,
        LifeEvent.HOPELESS,
        LifeEvent.WANTED,
        LifeEvent.UNWANTED,
        LifeEvent.CRASHED,
    )
    assert actions == [
        Action.FORK,
        Action.DELAY,
        Action.FORK,
        Action.FAIL,
        Action.FORK,
        Action.TERMINATE,
        Action.SETTLE,
    ]


def test_the_first_restart_is_immediate_and_each_later_one_is_delayed_more() -> None:
    crashes = RestartCounter()
    delays = [crashes.note(float(moment), LIMIT) for moment in range(5)]
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6]


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


def test_a_request_by_a_person_resets_the_count() -> None:
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
def test_a_teammate_fails_if_and_only_if_too_many_crashes_are_in_the_window(
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
