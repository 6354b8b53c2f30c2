"""The file of the merge queue survives a kill between any two of its operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.board.board import Board
from teamd.board.rules import Change
from teamd.board.task import TaskStatus
from teamd.copies.move_branch import NotLanded
from teamd.copies.source import GitKilled
from teamd.errors import StoreError, TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.merges.queue import Entry, MergeState, Queue
from teamd.messages import TEAMD, Message
from teamd.team.states import Status
from tests.children import kill_at_each_step
from tests.unit.life import enrol

COMMIT = "0123456789" * 4
WORK = Entry(id="", teammate="alice", commit=COMMIT, task="1", key="claim")


def made(folder: Path) -> Queue:
    paths = TeamPaths(folder / ".team")
    enrol(paths, alice=Status.IDLE, bob=Status.IDLE)
    queue = Queue(
        Board(paths, MailRouter(paths, durable=False, max_bytes=10**6), TEAMD, durable=False)
    )
    board = Board(paths, queue.board.post, "lead", durable=False)
    board.add("x", owner="alice")
    board.update("1", Change(status=TaskStatus.COMPLETED))
    return queue


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return made(tmp_path)


def keep(_: str) -> None:
    """Do not keep the commit: there is no repository."""


def mail() -> Message:
    return Message(sender=TEAMD, to="alice", content="not merged")


@pytest.mark.slow
def test_a_failed_merge_is_reported_once_and_reopens_its_task_once_even_after_kills(
    tmp_path: Path,
) -> None:
    for kill in kill_at_each_step(least=5):
        queue = made(tmp_path / str(kill.number))
        entry = queue.add(WORK, keep)

        def act(begin: Callable[[], None], queue: Queue = queue, entry: Entry = entry) -> None:
            begin()
            queue.finish(entry.id, MergeState.FAILED, "why", mail=mail(), note="not merged (1)")

        kill.during(act)
        queue.flush()
        if not queue.read().open:  # otherwise it was killed earlier, and the merge is checked again
            lines = queue.board.post.mailbox("alice").peek()
            assert len({one.id for one in lines if one.content == "not merged"}) == 1
            task = queue.board.read().get("1")
            assert (task.status, task.owner) == (TaskStatus.IN_PROGRESS, "alice")
            assert task.notes.count("not merged (1)") == 1
            assert not queue.read().all[0].untold


def test_a_task_that_its_owner_completes_again_is_not_reopened_a_second_time(queue: Queue) -> None:
    """As after a kill between reopening the task and recording that."""
    entry = queue.add(WORK, keep)
    queue.finish(entry.id, MergeState.FAILED, "why", mail=mail(), note="not merged (1)")
    paths = queue.board.paths
    alice = Board(paths, queue.board.post, "alice", durable=False)
    alice.update("1", Change(status=TaskStatus.COMPLETED))
    there = queue.read()
    left = replace(there.all[0], note="not merged (1)", untold=(mail(),))
    paths.queue.write_bytes(replace(there, all=(left,)).encode())
    queue.flush()
    assert queue.board.read().get("1").status is TaskStatus.COMPLETED


def test_repeated_claims_join_one_entry_and_ids_are_never_reused(queue: Queue) -> None:
    kept: list[str] = []
    first = queue.add(WORK, kept.append)
    assert queue.add(WORK, kept.append) == first
    other = replace(WORK, key="", teammate="bob")
    second = queue.add(other, kept.append)
    assert queue.add(other, kept.append) == second
    assert kept == ["1", "2"]
    queue.remove("2")
    assert queue.add(other, kept.append).id == "3"
    queue.finish("1", MergeState.MERGED, "", mail=None)
    assert queue.add(WORK, kept.append).state is MergeState.MERGED


def test_a_removed_entry_is_neither_changed_nor_landed(queue: Queue) -> None:
    entry = queue.add(WORK, keep)
    queue.remove(entry.id)
    assert queue.note(entry.id, passed=True) is None
    assert queue.finish(entry.id, MergeState.MERGED, "", mail=None) is None
    moved: list[bool] = []
    assert not queue.land(entry.id, lambda: moved.append(True))
    assert moved == []


@pytest.mark.parametrize("error", [GitKilled("git was killed"), NotLanded("work in the way")])
def test_a_failed_landing_stays_recorded_only_if_files_may_have_changed(
    queue: Queue, error: TeamError
) -> None:
    """Otherwise the files that a killed git had changed would count as the person's changes."""
    entry = queue.add(WORK, keep)

    def move() -> None:
        raise error

    with pytest.raises(type(error)):
        queue.land(entry.id, move)
    assert queue.read().all[0].landing is not isinstance(error, NotLanded)


def test_finished_entries_are_listed_for_a_day(queue: Queue) -> None:
    entry = queue.add(WORK, keep)
    queue.finish(entry.id, MergeState.MERGED, "", mail=None)
    there = queue.read()
    old = replace(there.all[0], when=there.all[0].when - 90_000)
    queue.board.paths.queue.write_bytes(replace(there, all=(old,)).encode())
    queue.add(replace(WORK, key="other"), keep)
    assert [one.id for one in queue.read().all] == ["2"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 2}', b'{"format": 1, "queue": [1]}'])
def test_a_damaged_queue_file_is_reported_and_kept(queue: Queue, content: bytes) -> None:
    queue.board.paths.queue.write_bytes(content)
    with pytest.raises(StoreError, match=r"is damaged .*; move it away, and add its open"):
        queue.read()
    with pytest.raises(TeamError):
        queue.add(WORK, keep)
    assert queue.board.paths.queue.read_bytes() == content
