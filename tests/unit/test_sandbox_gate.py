"""The gate that holds a sandboxed command back."""

from __future__ import annotations

import pytest

from teamd.programs.sandboxed import Gate


@pytest.mark.timeout(20)  # it would take a minute
def test_nothing_is_waited_for_once_bubblewrap_is_gone() -> None:
    """What it began may outlive it with its end of the socket, and say nothing more."""
    gate = Gate()
    outlives = gate.theirs.dup()
    with outlives, pytest.raises(TimeoutError):
        gate.first(lambda: False)
    gate.close()


def test_what_bubblewrap_said_before_it_ended_counts() -> None:
    gate = Gate()
    with gate.theirs.dup() as theirs:
        theirs.send(b'{"child-pid": 7}\nready\n')
        assert gate.first(lambda: False) == 7
        gate.wait(lambda: False)
    gate.close()


def test_a_sandbox_that_ends_before_it_is_made_is_no_sandbox() -> None:
    gate = Gate()
    with pytest.raises(OSError, match="the sandbox could not be made"):
        gate.first(lambda: True)
    gate.close()
