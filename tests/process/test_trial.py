"""The first fork of a start: an error that prevents it is reported as the error of the start."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from teamd.errors import StoreError, TeamError
from teamd.supervisor import fork
from teamd.supervisor.fork import try_fork

MACHINE = "; `teamctl doctor` checks the machine"


def fail(error: BaseException) -> Callable[[int], None]:
    def try_first_steps(_: int) -> None:
        raise error

    return try_first_steps


def kill_itself(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def sleep(_: int) -> None:
    time.sleep(60)


def test_a_trial_runs_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "pid"

    def try_first_steps(_: int) -> None:
        file.write_text(str(os.getpid()))

    try_fork(try_first_steps, fork.fork)
    assert int(file.read_text()) != os.getpid()


@pytest.mark.parametrize(
    ("try_first_steps", "sentence"),
    [
        (fail(KeyError("uid not found: 4242")), "KeyError: 'uid not found: 4242'"),
        (fail(AssertionError()), "AssertionError"),
        (fail(OSError(errno.EIO, "Input/output\nerror")), "OSError: [Errno 5] Input/output error"),
        (kill_itself, "its process was killed by signal 9"),
        (fail(SystemExit(3)), "its process ended with exit code 1"),
    ],
)
def test_a_failed_trial_is_reported_in_one_sentence(
    try_first_steps: Callable[[int], None], sentence: str
) -> None:
    with pytest.raises(TeamError) as caught:
        try_fork(try_first_steps, fork.fork)
    assert str(caught.value).startswith(f"no teammate can begin here: {sentence}")
    assert str(caught.value).endswith(MACHINE)
    assert "\n" not in str(caught.value)


def test_a_team_error_of_a_trial_is_reported_unchanged() -> None:
    with pytest.raises(TeamError) as caught:
        try_fork(fail(StoreError("the folder is full; free some space")), fork.fork)
    assert str(caught.value) == "the folder is full; free some space"


def test_a_failed_fork_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = open_descriptors()
    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(TeamError) as caught:
        try_fork(lambda _: None, fork.fork)
    why = "no process or thread can be started, since the limit on processes is reached"
    remedy = "raise `ulimit -u`, or the pids limit of the container"
    assert str(caught.value) == f"no teammate can begin here: {why}; {remedy}"
    assert open_descriptors() <= before  # those of earlier tests may be collected meanwhile


def test_a_trial_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "_TRIAL_SECONDS", 0.1)
    before, children = open_descriptors(), psutil.Process().children()
    with pytest.raises(TeamError, match=r"its first steps took more than 0\.1 s"):
        try_fork(sleep, fork.fork)
    assert open_descriptors() <= before  # those of earlier tests may be collected meanwhile
    assert {*psutil.Process().children()} <= {*children}  # others may end meanwhile
