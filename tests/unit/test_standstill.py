"""The notices about unfinished work of an idle team."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from teamd.board.task import Task, TaskStatus
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.merges.queue import Entries, Entry, MergeState
from teamd.messages import LEAD, Message
from teamd.overview.overview import OverviewReader
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.unit.life import call, enrol

TASKS = "; `teamctl tasks` shows the next step"
QUEUE = "; `teamctl queue` shows the next step"


@pytest.fixture
def served(paths: TeamPaths) -> Iterator[TeamPaths]:
    """A team whose teamd seems to run."""
    claim = pidfile.claim(paths)
    yield paths
    os.close(claim)


def start_task(paths: TeamPaths, task_id: str, owner: str, **facts: Any) -> None:
    task = Task(id=task_id, subject="Build", owner=owner, status=TaskStatus.IN_PROGRESS)
    paths.task(task_id).write_bytes(replace(task, **facts).encode())


def fill_queue(paths: TeamPaths, *states: tuple[str, MergeState], when: float = 0.0) -> None:
    """Write a queue with entries of these teammates."""
    when = when or time.time()
    entries = tuple(
        Entry(id=str(number), teammate=name, commit="0" * 40, state=state, when=when)
        for number, (name, state) in enumerate(states, start=1)
    )
    paths.queue.parent.mkdir(parents=True, exist_ok=True)
    paths.queue.write_bytes(Entries(entries, len(entries)).encode())


def notices(paths: TeamPaths) -> list[str]:
    return [line for one in OverviewReader(paths).read().notices for line in one.lines]


def set_status(paths: TeamPaths, name: str, status: Status) -> None:
    Roster(paths).update(lambda team: team.with_member(replace(team.get(name), status=status)))


def test_tasks_of_idle_owners_are_a_notice_of_the_team(served: TeamPaths) -> None:
    enrol(served, ann=Status.IDLE, cid=Status.IDLE)
    start_task(served, "1", "ann", status=TaskStatus.PENDING)
    start_task(served, "3", "cid")
    text = f"task 3 is in progress, but its owner cid is idle{TASKS}"
    assert notices(served) == [text]
    assert text in " ".join(call(served, "team").out.split())
    start_task(served, "4", "ann")
    start_task(served, "5", "cid")
    assert notices(served) == [
        f"3 tasks are in progress, but their owners are idle (cid, ann){TASKS}"
    ]


def test_a_conflict_is_a_notice_until_the_teammate_s_next_work_is_merged(
    served: TeamPaths,
) -> None:
    enrol(served, ann=Status.IDLE, cid=Status.IDLE)
    fill_queue(served, ("cid", MergeState.CONFLICT))
    assert notices(served) == [f"1 merge did not go through (cid: conflict){QUEUE}"]
    fill_queue(
        served,
        ("cid", MergeState.CONFLICT),
        ("ann", MergeState.CONFLICT),
        ("cid", MergeState.FAILED),
    )
    assert notices(served) == [f"2 merges did not go through (cid: failed, ann: conflict){QUEUE}"]
    fill_queue(served, ("cid", MergeState.CONFLICT), ("cid", MergeState.MERGED))
    assert notices(served) == []


@pytest.mark.parametrize("mail", [True, False])
def test_unfinished_work_is_no_notice_while_anybody_works(served: TeamPaths, *, mail: bool) -> None:
    """A teammate with mail in its inbox works in a moment."""
    enrol(served, ann=Status.IDLE, cid=Status.IDLE)
    start_task(served, "3", "cid")
    fill_queue(served, ("cid", MergeState.CONFLICT))
    assert len(notices(served)) == 2
    if mail:
        Mailbox(served, "cid").put(Message(id="1", sender=LEAD, to="cid", content="Go on."))
    else:
        set_status(served, "ann", Status.WORKING)
    assert notices(served) == []


def test_a_task_of_a_paused_owner_is_no_notice_beside_that_of_the_pause(served: TeamPaths) -> None:
    enrol(served, cid=Status.IDLE)
    start_task(served, "3", "cid")
    set_status(served, "cid", Status.PAUSED)
    assert notices(served) == ["cid is paused; `teamctl resume cid` resumes it"]


def test_an_old_conflict_and_the_work_of_a_removed_teammate_are_no_notice(
    served: TeamPaths,
) -> None:
    """`teamctl queue` lists finished entries for a day."""
    enrol(served, cid=Status.IDLE)
    fill_queue(served, ("cid", MergeState.CONFLICT), when=time.time() - 90_000)
    assert notices(served) == []
    fill_queue(served, ("gone", MergeState.CONFLICT))
    assert notices(served) == []


def test_an_unreadable_queue_or_board_does_not_hide_the_team(served: TeamPaths) -> None:
    enrol(served, cid=Status.IDLE)
    start_task(served, "3", "cid")
    served.queue.write_text("no queue")
    assert notices(served) == [f"task 3 is in progress, but its owner cid is idle{TASKS}"]
    served.tasks.rename(served.root / "elsewhere")
    served.tasks.write_text("no folder")
    assert call(served, "team").status == 0
