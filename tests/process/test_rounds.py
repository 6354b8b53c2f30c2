"""A round of the supervisor is short, no matter how many teammates start or end at a time."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from teamd import clocks
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.messages import TEAMD
from teamd.process_id import Identity
from teamd.supervisor.children import Children
from teamd.supervisor.fork import ChildProgram
from teamd.supervisor.lifecycle import State
from teamd.supervisor.workers import CopyMakers, CopyOutcome
from teamd.team.states import ChildExit, ChildStart
from tests.children import make_context
from tests.waiting import wait_until

DEAF: Final = "deaf"
NAMES: Final = ("ann", "bob", "cat", DEAF)
_FORK_SECONDS: Final = 0.06  # longer than a round may fork without a break


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    """Teammates that hibernate at once and take long to fork."""
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    paths.settings.write_text("[supervision]\nstuck_seconds = 1\n")
    program = ChildProgram(
        run=_hibernate,
        load=lambda: time.sleep(_FORK_SECONDS),
        warning=lambda: None,
        find_role=lambda _: None,
    )
    with closing(Journal(paths.log(TEAMD), TEAMD)) as journal:
        found = make_context(paths, journal, program).children
        yield found
        for name in NAMES:
            found.stop(name, seconds=0)
        found.kill_all()
        wait_until(lambda: found.reap() and not found.active(), what="all have ended")


def _hibernate(start: ChildStart) -> int:
    if not start.hibernates and start.name != DEAF:
        return ChildExit.HIBERNATES
    os.set_blocking(start.bell, True)
    return len(os.read(start.bell, 1))


def _processes(children: Children) -> list[Identity]:
    return [found for name in NAMES if (found := children.process(name)) is not None]


def test_each_round_forks_at_most_one_of_several_starts_and_hibernations(
    children: Children,
) -> None:
    names = NAMES[:3]
    for name in names:
        children.start(name)
    children.begin()
    for started in range(1, len(names) + 1):
        assert children.next_due_seconds() == 0, "the next round begins at once"
        children.do_due()
        assert len(_processes(children)) == started, "slots and mail wait for one fork at most"
    before = _processes(children)
    for process in before:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    for ended in range(1, len(names) + 1):
        assert len(children.reap()) == 1
        assert len(set(before) & set(_processes(children))) == len(names) - ended
        children.check_heartbeats()
        assert children.next_due_seconds() == 0
    assert children.reap() == []
    children.check_heartbeats()
    assert children.next_due_seconds() > 0


def test_an_ended_process_is_not_reported_as_stuck_while_it_waits_for_its_round(
    children: Children,
) -> None:
    children.begin()
    children.start("ann")
    process = children.process("ann")
    assert process is not None
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    due = clocks.awake() + children.heartbeats.seconds
    wait_until(lambda: clocks.awake() > due, what="it has been silent for too long")
    children.check_heartbeats()
    assert children.state("ann") is State.RUNNING


def test_a_stuck_process_that_ends_stays_marked_as_stuck(children: Children) -> None:
    """Otherwise its crash would be reported without mentioning that it was stuck."""
    children.begin()
    children.start(DEAF)
    process = children.process(DEAF)
    assert process is not None
    look = children.check_heartbeats
    wait_until(lambda: look() or children.state(DEAF) is State.STUCK, what="it is stuck")
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    wait_until(lambda: children.next_due_seconds() == 0, what="the next look")
    look()
    assert children.state(DEAF) is State.STUCK


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[CopyMakers]:
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    with closing(Journal(paths.log(TEAMD), TEAMD)) as journal:
        yield make_context(paths, journal).copies


def test_no_other_process_inherits_the_report_about_a_working_copy(
    copies: CopyMakers, tmp_path: Path
) -> None:
    """In a teammate it would stay open for days."""
    outcomes: list[CopyOutcome] = []
    copies.make("bob", "default", tmp_path, outcomes.append)
    copies.look()
    private = list(copies.children.private)
    assert len(private) == 2, "the worker's bell and its report"
    other = copies.children.fork(lambda _: sum(Path(f"/dev/fd/{fd}").exists() for fd in private))
    assert os.waitstatus_to_exitcode(os.waitpid(other.identity.pid, 0)[1]) == 0
    os.close(other.bell)
    wait_until(copies.reap, what="the worker has ended")
    copies.look()
    assert len(outcomes) == 1
    assert copies.children.private == []


def test_a_temporary_file_that_cannot_be_created_is_reported_as_such(
    copies: CopyMakers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    outcomes: list[CopyOutcome] = []
    copies.make("bob", "default", tmp_path, outcomes.append)
    copies.look()
    (outcome,) = outcomes
    assert outcome.error == "no temporary file could be made: No such file or directory"
