"""The table of a shutdown."""

from __future__ import annotations

from itertools import product

import pytest

from teamd.supervisor.shutdowns import (
    ShutdownAction,
    ShutdownEvent,
    ShutdownState,
    next_shutdown_step,
)


def test_an_ending_process_is_ended_once_and_its_shutdown_is_never_withdrawn() -> None:
    """Otherwise a late rejection would cause a second answer."""
    for event in ShutdownEvent:
        state, action = next_shutdown_step(ShutdownState.ENDING, event)
        assert action is not ShutdownAction.END
        assert state in (ShutdownState.ENDING, ShutdownState.ENDED)


def test_only_settled_or_rejected_requests_are_closed() -> None:
    closing = {
        (state, event)
        for state, event in product(ShutdownState, ShutdownEvent)
        if next_shutdown_step(state, event)[0] is ShutdownState.CLOSED is not state
    }
    assert closing == {
        (ShutdownState.ASKED, ShutdownEvent.REJECTED),
        (ShutdownState.ENDED, ShutdownEvent.SETTLED),
    }


@pytest.mark.parametrize(
    "first", [ShutdownEvent.APPROVED, ShutdownEvent.EXPIRED, ShutdownEvent.FORCED]
)
def test_a_teammate_is_ended_then_its_callers_are_informed_then_the_end_is_recorded(
    first: ShutdownEvent,
) -> None:
    forced, state, actions = ShutdownEvent.FORCED, ShutdownState.ASKED, []
    for event in (first, forced, ShutdownEvent.STOPPED, forced, ShutdownEvent.LOOKED):
        state, action = next_shutdown_step(state, event)
        actions.append(action)
    assert state is ShutdownState.ENDED
    assert actions == [
        ShutdownAction.END,
        ShutdownAction.HURRY,
        ShutdownAction.TELL_AND_SETTLE,
        ShutdownAction.TELL,
        ShutdownAction.SETTLE,
    ]


@pytest.mark.parametrize("event", ShutdownEvent)
def test_a_closed_shutdown_does_nothing_more(event: ShutdownEvent) -> None:
    closed = (ShutdownState.CLOSED, ShutdownAction.NOTHING)
    assert next_shutdown_step(ShutdownState.CLOSED, event) == closed
