"""The lifetime of entries in the file of the merge queue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from teamctl.render.queue_table import queue_notes
from teamd.board.board import Board
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.merges.queue import Entries, Entry, MergeState, Queue
from teamd.messages import TEAMD


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    made.create()
    return made


@pytest.fixture
def queue(paths: TeamPaths) -> Queue:
    post = MailRouter(paths, durable=False, max_bytes=1000)
    return Queue(Board(paths, post, TEAMD, durable=False))


def test_waiting_entries_stay_and_finished_ones_are_listed_for_a_day(
    paths: TeamPaths, queue: Queue
) -> None:
    long_ago = Entry(id="", teammate="ann", commit="0" * 40, when=1.0)
    old = tuple(
        replace(long_ago, id=str(number), state=state)
        for number, state in enumerate(MergeState, start=1)
    )
    paths.queue.parent.mkdir(parents=True, exist_ok=True)
    paths.queue.write_bytes(Entries(old, len(old)).encode())
    queue.add(Entry(id="", teammate="bob", commit="1" * 40), keep=lambda _: None)
    left = {(entry.teammate, entry.state) for entry in queue.read().all}
    assert left == {
        ("ann", MergeState.WAITING), ("ann", MergeState.CHECKING), ("bob", MergeState.WAITING),
    }  # fmt: skip


def test_a_commit_that_cannot_be_kept_does_not_join_the_queue(queue: Queue) -> None:
    """Its ref comes first: otherwise `git gc` could remove a commit that waits."""

    def fail(_: str) -> None:
        raise TeamError("no ref could be written")

    wanted = Entry(id="", teammate="bob", commit="1" * 40)
    with pytest.raises(TeamError, match="no ref"):
        queue.add(wanted, keep=fail)
    assert queue.read().all == ()
    assert queue.add(wanted, keep=lambda _: None).id == "1"


def test_the_next_step_of_the_last_work_that_was_not_merged_is_named() -> None:
    entries = [
        Entry(id="1", teammate="ann", commit="0" * 40, state=MergeState.CONFLICT),
        Entry(id="2", teammate="bob", commit="0" * 40, state=MergeState.FAILED, task="7"),
        Entry(id="3", teammate="cay", commit="0" * 40, state=MergeState.CONFLICT),
        Entry(id="4", teammate="cay", commit="0" * 40, state=MergeState.MERGED),
    ]
    assert [*queue_notes(entries)] == [
        "ann was told how to repair 1; `teamctl queue add ann` queues it again",
        "bob was told how to repair 2; it joins the queue again once bob completes task 7",
    ]
