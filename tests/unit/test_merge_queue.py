"""The lifetime of entries in the file of the merge queue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from teamd.board.board import Board
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.merges.queue import Entries, Entry, MergeState, Queue
from teamd.messages import TEAMD


def test_waiting_entries_stay_and_finished_ones_are_listed_for_a_day(tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    queue = Queue(
        Board(paths, MailRouter(paths, durable=False, max_bytes=1000), TEAMD, durable=False)
    )
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
