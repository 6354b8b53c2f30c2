"""A reader that is killed before its first, second, … operation on a file, until it gets through.

Python tells audit hooks of each `open`, `flock`, `rename`, `truncate` and `unlink` beforehand.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import EMPTY, Mailbox
from teamd.mail.spool import BatchLimit, Spool
from teamd.messages import Message

if TYPE_CHECKING:
    from pathlib import Path

READS = """
import os, signal, sys
from pathlib import Path
from teamd.mail.mailbox import Mailbox
from teamd.mail.spool import BatchLimit
from teamd.files.paths import TeamPaths
team, steps, deadly, left = sys.argv[1], sys.argv[2].split(), sys.argv[3], int(sys.argv[4])
portion = BatchLimit(wary=len(sys.argv) > 5)
armed = False
def die(event, arguments):
    global left
    if armed and event.startswith(("open", "os.", "fcntl.")):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
sys.addaudithook(die)
box = Mailbox(TeamPaths(Path(team)), "bob")
batch = None
for step in steps:
    armed = step == deadly
    batch = box.take(portion) if step == "take" else getattr(box, step)(*[batch] * (step == "done"))
"""


def put(paths: TeamPaths, *contents: str) -> None:
    messages = [Message(sender="alice", to="bob", content=content) for content in contents]
    Mailbox(paths, "bob").put(*messages)


def rest(paths: TeamPaths) -> list[str]:
    """Everything that the readers after it get."""
    box = Mailbox(paths, "bob")
    found = []
    while (batch := box.take()) != EMPTY:
        found += [message.content for message in batch.messages]
        box.done(batch)
    return found


def survived(paths: TeamPaths, steps: str, deadly: str, left: int, *more: str) -> bool:
    argv = [sys.executable, "-c", READS, str(paths.root), steps, deadly, str(left), *more]
    code = subprocess.run(argv, check=False, timeout=60).returncode
    assert code in (0, -signal.SIGKILL)
    return code == 0


@pytest.mark.parametrize(
    ("steps", "deadly", "possible"),
    [
        ("take", "take", [["a", "b", "c"]]),
        ("take done", "done", [["a", "b", "c"], ["c"]]),
        ("take leftover", "leftover", [["a", "b", "c"], ["c"]]),
    ],
)
def test_each_message_comes_once(
    tmp_path: Path, steps: str, deadly: str, possible: list[list[str]]
) -> None:
    """In order, not twice, and none is gone before it was done with; `c` comes after the kill."""
    for left in range(1, 50):
        paths = TeamPaths(tmp_path / str(left))
        paths.create()
        put(paths, "a", "b")
        through = survived(paths, steps, deadly, left)
        put(paths, "c")
        assert rest(paths) in possible
        if through:
            break
    assert through
    assert left > 2


def test_a_line_that_is_no_message_is_rejected_once(tmp_path: Path) -> None:
    """It is counted, and somebody may look for each of them."""
    for left in range(1, 50):
        paths = TeamPaths(tmp_path / str(left))
        paths.create()
        paths.rejected("bob").write_bytes(b"older\n")
        paths.inbox("bob").write_bytes(b"nonsense\nnonsense\n")
        put(paths, "a")
        through = survived(paths, "take", "take", left)
        assert rest(paths) == ["a"]
        assert paths.rejected("bob").read_bytes() == b"older\nnonsense\nnonsense\n", left
        if through:
            break
    assert through
    assert left > 10


def test_a_culprit_is_rejected_once(tmp_path: Path) -> None:
    for left in range(1, 50):
        paths = TeamPaths(tmp_path / str(left))
        paths.create()
        put(paths, "a", "b")
        Mailbox(paths, "bob").take()
        taken = Spool(paths.taken("bob"), "bob")
        position = taken.position()
        assert position is not None
        taken.move(replace(position, singly=files.size(taken.path), crashes=2, holder=1))
        through = survived(paths, "take", "take", left, "wary")
        box = Mailbox(paths, "bob")
        assert [message.content for message in box.take(BatchLimit(wary=True)).messages] == ["b"]
        assert (box.rejected(), b'"a"' in paths.rejected("bob").read_bytes()) == (1, True), left
        if through:
            break
    assert through
    assert left > 5
