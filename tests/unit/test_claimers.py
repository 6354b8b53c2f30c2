"""A change of the board wakes the teammates that may start a task now."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.board.files import TaskFiles, Tasks
from teamd.board.news import find_claimers
from teamd.board.task import Task, TaskStatus
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.team.member import Member
from teamd.team.roster import Team
from teamd.team.states import Status
from tests.waiting import wait_until

PENDING, IN_PROGRESS, CHECKING, COMPLETED, DELETED = TaskStatus
ROLES = {"ann": "coder", "bob": "coder", "tim": "tester"}
TEAM = Team(
    members=tuple(
        Member(name=name, agent_id=name, role=role, status=Status.IDLE)
        for name, role in ROLES.items()
    )
)
ONE = Task(id="1", subject="Write it")
TWO = Task(id="2", subject="Test it", role="tester", blocked_by=("1",))


@pytest.mark.parametrize(
    ("before", "now", "woken"),
    [
        ([], [ONE], "ann bob tim"),
        ([], [replace(ONE, role="Coder")], "ann bob"),
        ([], [replace(ONE, owner="bob")], "bob"),
        ([], [replace(ONE, given_back=("ann",))], "bob tim"),
        ([ONE], [replace(ONE, status=IN_PROGRESS, owner="ann"), TWO], "ann"),
        ([ONE, TWO], [replace(ONE, status=COMPLETED, owner="ann"), TWO], "ann tim"),
        ([replace(ONE, status=IN_PROGRESS, owner="ann")], [replace(ONE, status=DELETED)], "ann"),
        ([ONE, TWO], [TWO], "tim"),
    ],
)
def test_a_change_wakes_only_the_teammates_it_concerns(
    before: list[Task], now: list[Task], woken: str
) -> None:
    """Task 1 has changed; its owner may start another one."""
    looks = [Tasks({task.id: task for task in tasks}) for tasks in (before, now)]
    assert find_claimers(TEAM, frozenset("1"), *looks) == woken.split()


def test_a_change_of_another_task_wakes_no_teammate_for_this_one() -> None:
    assert find_claimers(TEAM, frozenset("9"), Tasks(), Tasks({"1": ONE})) == []


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    made.create()
    return made


def put(paths: TeamPaths, task: Task) -> None:
    files.replace(paths.task(task.id), task.encode(), durable=False)


def test_every_change_is_seen_even_right_after_another_one(paths: TeamPaths) -> None:
    """Within one tick of the kernel's clock a file may change and keep size, time and inode."""
    kept = TaskFiles(paths)
    for number in range(500):
        subject = f"Task {number:03d}"
        put(paths, replace(ONE, subject=subject))
        assert kept.read().by_id["1"].subject == subject


def test_an_unchanged_file_is_not_read_again(paths: TeamPaths) -> None:
    put(paths, ONE)
    kept = TaskFiles(paths)

    def same() -> bool:
        return kept.read().by_id["1"] is kept.read().by_id["1"]

    wait_until(same, what="the file is old enough")
    paths.task("1").write_bytes(replace(ONE, subject="Write IT").encode())
    assert kept.read().by_id["1"].subject == "Write IT"
    os.remove(paths.task("1"))  # noqa: PTH107 -- by somebody else
    assert kept.read().by_id == {}
