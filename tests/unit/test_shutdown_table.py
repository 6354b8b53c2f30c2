"""The table of a shutdown: every cell, and invariants over any sequence of events."""

from __future__ import annotations

from itertools import product

import pytest

from teamd.supervisor.shutdowns import (
    SHUTDOWN_TABLE,
    ShutdownAction,
    ShutdownEvent,
    ShutdownState,
    ShutdownStep,
)

STEPS = {
    (ShutdownState.ASKED, ShutdownEvent.APPROVED): (ShutdownState.ENDING, ShutdownAction.END),
    (ShutdownState.ASKED, ShutdownEvent.REJECTED): (ShutdownState.CLOSED, ShutdownAction.TELL),
    (ShutdownState.ASKED, ShutdownEvent.EXPIRED): (ShutdownState.ENDING, ShutdownAction.END),
    (ShutdownState.ASKED, ShutdownEvent.FORCED): (ShutdownState.ENDING, ShutdownAction.END),
    (ShutdownState.ENDING, ShutdownEvent.FORCED): (ShutdownState.ENDING, ShutdownAction.HURRY),
    (ShutdownState.ENDING, ShutdownEvent.STOPPED): (
        ShutdownState.ENDED,
        ShutdownAction.TELL_AND_SETTLE,
    ),
    (ShutdownState.ENDED, ShutdownEvent.FORCED): (ShutdownState.ENDED, ShutdownAction.TELL),
    (ShutdownState.ENDED, ShutdownEvent.LOOKED): (ShutdownState.ENDED, ShutdownAction.SETTLE),
    (ShutdownState.ENDED, ShutdownEvent.SETTLED): (ShutdownState.CLOSED, ShutdownAction.NOTHING),
}


@pytest.mark.parametrize(("state", "event"), [*product(ShutdownState, ShutdownEvent)])
def test_every_cell_has_the_expected_step(state: ShutdownState, event: ShutdownEvent) -> None:
    """An event that is not listed here changes nothing and causes no action."""
    expected = STEPS.get((state, event), (state, ShutdownAction.NOTHING))
    assert SHUTDOWN_TABLE[state, event] == ShutdownStep(*expected)


def test_an_ending_process_is_ended_once_and_its_shutdown_is_never_withdrawn() -> None:
    """Otherwise a late rejection would cause a second answer."""
    for event in ShutdownEvent:
        step = SHUTDOWN_TABLE[ShutdownState.ENDING, event]
        assert step.action is not ShutdownAction.END
        assert step.state in (ShutdownState.ENDING, ShutdownState.ENDED)


def test_only_settled_or_rejected_requests_are_closed() -> None:
    closing = {
        (state, event)
        for (state, event), step in SHUTDOWN_TABLE.items()
        if step.state is ShutdownState.CLOSED is not state
    }
    assert closing == {
        (ShutdownState.ASKED, ShutdownEvent.REJECTED),
        (ShutdownState.ENDED, ShutdownEvent.SETTLED),
    }
