"""The supervisor's view of check processes, and judgements killed at any step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teamd.board.board import Board
from teamd.board.rules import Change
from teamd.board.task import Attempt, TaskStatus
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.messages import TEAMD
from teamd.supervisor.fork import CheckStart
from teamd.supervisor.workers import Checkers
from teamd.team.states import ChildExit, Status
from tests.children import NOBODY, kill_at_each_step, make_context, survived
from tests.unit.life import enrol
from tests.waiting import wait_until

DONE = Change(status=TaskStatus.COMPLETED)
FAILED = Attempt(time=1.0, seconds=1.0, status=1, command="false")
PASSED = Attempt(time=1.0, seconds=1.0, status=0, command="true")


def made(folder: Path) -> TeamPaths:
    paths = TeamPaths(folder / ".team")
    enrol(paths, alice=Status.WORKING, bob=Status.IDLE)
    return paths


def board(paths: TeamPaths, who: str) -> Board:
    return Board(paths, MailRouter(paths, durable=False, max_bytes=10**6), who, durable=False)


def claimed(paths: TeamPaths) -> str:
    """Create a task with a check and claim it as done; return the name of the claim."""
    task = board(paths, "lead").add("x", owner="alice", check="true")
    return board(paths, "alice").update(task.id, DONE).task.claim


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    return made(tmp_path)


class World:
    """Some check processes and their behavior."""

    def __init__(self, paths: TeamPaths, journal: Journal) -> None:
        self.paths = paths
        self.deed: Callable[[CheckStart], int] = lambda _: ChildExit.STOPPED
        program = replace(NOBODY, check=self._check)
        context = make_context(paths, journal, program)
        self.private = context.children.private
        self.settings = context.settings
        self.checkers = Checkers(board(paths, TEAMD), context.children)

    def _check(self, start: CheckStart) -> int:
        return self.deed(start)

    def ends(self) -> int:
        """Repeat the round until a process has ended; return its exit code."""
        codes: list[int] = []

        def look() -> list[int]:
            self.checkers.look()
            codes.extend(self.checkers.reap())
            return codes

        wait_until(look, what="one has ended")
        return codes[0]


@pytest.fixture
def world(paths: TeamPaths) -> Iterator[World]:
    with closing(Journal(paths.log(TEAMD), TEAMD)) as journal:
        made = World(paths, journal)
        yield made
        made.checkers.close()
        wait_until(lambda: made.checkers.reap() or not made.checkers.pids(), what="all ended")


def sleep(_: CheckStart) -> int:
    time.sleep(100)
    return ChildExit.STOPPED


def test_claims_are_checked_one_at_a_time_in_turn(world: World) -> None:
    world.deed = sleep
    for _ in range(3):
        claimed(world.paths)
    for _ in range(3):
        world.checkers.look()
        assert len(world.checkers.pids()) == 1
    assert len(world.private) == 1
    world.checkers.kill_all()
    assert world.ends() < 0
    world.checkers.look()
    assert len(world.checkers.pids()) == 1, "the next one's turn, while the first has a pause"


@pytest.mark.slow
def test_a_check_that_hangs_is_killed_and_its_claim_is_checked_again(world: World) -> None:
    world.deed = sleep
    now = world.settings.now
    world.settings.now = replace(now, tasks=replace(now.tasks, check_seconds=-299.5))
    claimed(world.paths)
    assert world.ends() == -9
    assert world.checkers.look() > 0, "in a moment"
    assert world.ends() == -9
    assert world.private == []


@pytest.mark.slow
def test_the_check_of_a_withdrawn_claim_is_killed(world: World) -> None:
    world.deed = sleep
    claimed(world.paths)
    world.checkers.look()
    board(world.paths, "alice").update("1", Change(status=TaskStatus.IN_PROGRESS))
    world.checkers.note({"1.json"})
    assert world.ends() == -9
    world.checkers.look()
    assert not world.checkers.pids()


def test_a_change_without_a_notification_is_found(world: World) -> None:
    world.checkers.look()
    claimed(world.paths)
    world.checkers.look()
    assert not world.checkers.pids()
    world.checkers.note(None)
    world.checkers.look()
    assert world.checkers.pids()


def test_after_closing_no_check_is_forked(world: World) -> None:
    claimed(world.paths)
    world.checkers.close()
    world.checkers.look()
    assert not world.checkers.pids()
    assert world.checkers.look() > 1


@pytest.mark.slow
@pytest.mark.parametrize("deed", ["claim", "pass", "fail"])
def test_a_judgement_killed_at_any_step_is_completed_once_by_the_next_process(
    tmp_path: Path, deed: str
) -> None:
    """A partial judgement does not count, and a complete one is not repeated."""
    for kill in kill_at_each_step(least=5):
        paths = made(tmp_path / str(kill.number))
        board(paths, "lead").add("y", owner="bob", blocked_by=())
        claim = "" if deed == "claim" else claimed(paths)
        if deed == "claim":
            board(paths, "lead").add("x", owner="alice", check="true")
        board(paths, "lead").update("1", Change(add_blocked_by=("2",)))

        def act(begin: Callable[[], None], paths: TeamPaths = paths, claim: str = claim) -> None:
            own = board(paths, "alice" if deed == "claim" else TEAMD)
            begin()
            if deed == "claim":
                own.update("2", DONE)
            elif own.find_claim("2", claim) is not None:
                own.judge("2", claim, PASSED if deed == "pass" else FAILED, "out", most=1)

        assert kill.during(act) or survived(10**6, act)
        board(paths, TEAMD).flush()
        assert look(paths) == EXPECTED[deed]


EXPECTED: dict[str, Any] = {
    "claim": (TaskStatus.CHECKING, 0, 0, 0, 0),
    "pass": (TaskStatus.COMPLETED, 1, 0, 0, 1),
    "fail": (TaskStatus.IN_PROGRESS, 1, 1, 1, 0),
}


def look(paths: TeamPaths) -> tuple[TaskStatus, int, int, int, int]:
    """Return the status of task 2, its number of attempts, and the numbers of distinct messages."""
    tasks, post = board(paths, "lead").read(), MailRouter(paths, durable=False, max_bytes=10**6)
    assert not tasks.damaged
    task = tasks.get("2")
    assert not task.untold

    def count(name: str, words: str) -> int:
        return len({m.id for m in post.mailbox(name).peek() if words in m.content})

    alice, lead = (count(name, "The check of task 2") for name in ("alice", "lead"))
    return task.status, len(task.attempts), alice, lead, count("bob", "Nothing blocks task 1")
