"""A process is its pid and when it started."""

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


def test_a_process_knows_itself() -> None:
    me = Identity.own()
    assert me.pid == os.getpid()
    assert me.alive
    assert Identity.of(os.getpid()) == me


def test_whoever_is_forked_is_another_process() -> None:
    """What is kept of the process above is no longer right, and a wrong one would look dead."""
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


def test_who_only_waits_to_be_reaped_is_gone() -> None:
    """Its pid is still taken, and `kill(pid, 0)` would say that it lives."""
    with child(WAITS) as process:
        found = Identity.of(process.pid)
        assert found is not None
        process.kill()
        wait_until(lambda: Identity.of(process.pid) is None, what="its end")
        os.kill(process.pid, 0)
        assert not found.alive
        assert not found.signal(signal.SIGTERM)


def test_a_later_process_with_the_same_pid_is_another_one() -> None:
    """It may be anybody's; a signal meant for a dead teammate must not hit it."""
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
def test_an_impossible_pid_is_nobody(pid: int) -> None:
    """Files name pids, and files can be edited; to `kill`, -1 means everybody."""
    nobody = Identity(pid=pid, started=1.0)
    assert Identity.of(pid) is None
    assert not nobody.alive
    assert not nobody.signal(signal.SIGCONT)


def test_a_program_may_be_called_anything(tmp_path: Path) -> None:
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


def test_who_has_gone_since_it_was_looked_for_is_not_at_work() -> None:
    """A start right behind a kill was refused, in the moment in which the killed one was gone."""
    assert Identity.own().at_work
    gone = replace(Identity.own(), started=1.0)
    assert not gone.ending
    assert not gone.at_work
