"""A process is identified by its pid and its start time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.process_id import Identity
from tests.children import child, forked
from tests.waiting import wait_until

WAITS = "import sys; sys.stdin.read()"


def test_a_process_recognizes_itself() -> None:
    me = Identity.own()
    assert me.pid == os.getpid()
    assert me.alive
    assert Identity.of(os.getpid()) == me


def test_a_forked_process_is_another_process() -> None:
    """The cached identity of the parent would be wrong, and a wrong one would look dead."""
    Identity.own()
    with forked(lambda: print(Identity.own() == Identity.of(os.getpid()))) as process:  # noqa: T201
        assert process.stdout.readline() == "True\n"


def test_a_signal_reaches_its_process() -> None:
    with child(WAITS) as process:
        found = Identity.of(process.pid)
        assert found is not None
        assert found.signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM
        assert not found.alive
        assert not found.signal(signal.SIGTERM)


def test_a_zombie_counts_as_gone() -> None:
    """Its pid is still taken, and `kill(pid, 0)` would say that it lives."""
    with child(WAITS) as process:
        found = Identity.of(process.pid)
        assert found is not None
        process.kill()
        wait_until(lambda: Identity.of(process.pid) is None, what="its end")
        os.kill(process.pid, 0)
        assert not found.alive
        assert not found.signal(signal.SIGTERM)


def test_a_later_process_with_the_same_pid_is_a_different_process() -> None:
    """The pid may belong to any process; a signal for a dead teammate must not hit it."""
    with child(WAITS) as process:
        found = Identity.of(process.pid)
        assert found is not None
        earlier = replace(found, started=found.started - 1)
        assert not earlier.alive
        assert not earlier.signal(signal.SIGKILL)
        assert found.alive
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


@pytest.mark.parametrize("pid", [0, -1, 2**31, 10**30])
def test_an_impossible_pid_does_not_name_a_process(pid: int) -> None:
    """Files contain pids, and files can be edited; to `kill`, -1 means all processes."""
    nobody = Identity(pid=pid, started=1.0)
    assert Identity.of(pid) is None
    assert not nobody.alive
    assert not nobody.signal(signal.SIGCONT)


def test_a_program_may_have_any_name(tmp_path: Path) -> None:
    """`/proc/PID/stat` holds the program's name unescaped, in the middle of its fields."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    strange = tmp_path / ") Z 1 (2"
    strange.symlink_to(sleep)
    with subprocess.Popen([strange, "1000"]) as process:
        try:
            found = Identity.of(process.pid)
            own = Identity.own()
            assert found is not None
            assert found.alive
            assert found.started >= own.started
        finally:
            process.kill()


def test_a_process_that_has_ended_meanwhile_does_not_count_as_running() -> None:
    """Otherwise a start right after a kill is refused while the killed process disappears."""
    assert Identity.own().at_work
    gone = replace(Identity.own(), started=1.0)
    assert not gone.ending
    assert not gone.at_work
