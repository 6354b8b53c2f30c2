"""The gate that holds a sandboxed command back."""

from __future__ import annotations

import pytest

from teamd.programs.sandboxed import FIRST, READY, Gate


@pytest.mark.timeout(20)  # otherwise it takes a minute
def test_the_gate_does_not_wait_after_bubblewrap_has_ended() -> None:
    """A child of bubblewrap may survive with its end of the socket, and stay silent."""
    gate = Gate()
    outlives = gate.theirs.dup()
    with outlives, pytest.raises(TimeoutError):
        gate.read(FIRST, lambda: False)
    gate.close()


def test_messages_that_bubblewrap_sent_before_it_ended_are_read() -> None:
    gate = Gate()
    with gate.theirs.dup() as theirs:
        theirs.send(b'{"child-pid": 7}\nready\n')
        assert gate.read(FIRST, lambda: False) == b'{"child-pid": 7}\n'
        gate.read(READY, lambda: False)
    gate.close()


def test_a_sandbox_that_ends_too_early_is_an_error() -> None:
    gate = Gate()
    gate.theirs.close()
    with pytest.raises(OSError, match="the sandbox could not be made"):
        gate.read(FIRST, lambda: True)
    gate.close()
