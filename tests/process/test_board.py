"""Several processes at one board: one winner each time, and no kill loses or doubles a change."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from teamd.board.board import Board
from teamd.board.rules import Change
from teamd.board.task import TaskStatus
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from tests.children import child, kill_at_each_step, survived

CLAIMS: Final = """
import sys
from pathlib import Path
from teamd.errors import TeamError
from teamd.board.board import Board
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
paths = TeamPaths(Path(sys.argv[1]))
board = Board(paths, MailRouter(paths, durable=False, max_bytes=10**6), sys.argv[2], durable=False)
for _ in sys.stdin:
    try:
        print("won", board.claim("1").task.owner, flush=True)
    except TeamError as error:
        print("lost", error, flush=True)
"""
DEEDS: Final[dict[str, Callable[[Board], object]]] = {
    "add": lambda board: board.add("Praise it", owner="bob", key="call"),
    "claim": lambda board: board.claim("3"),
    "complete": lambda board: board.update("1", Change(status=TaskStatus.COMPLETED)),
    "give": lambda board: board.update("1", Change(owner="bob")),
    "take_next": lambda board: (board.flush(), board.take_next("coder")),
    "release": lambda board: board.release(lambda owner: "gone" if owner == "alice" else None),
}


def made(folder: Path) -> TeamPaths:
    """Create a team of two with three tasks: 1 alice's, 2 bob's and blocked by 1, 3 free."""
    paths = TeamPaths(folder / ".team")
    paths.create()
    members = [{"name": name, "role": "coder", "status": "idle"} for name in ("alice", "bob")]
    paths.config.write_text(json.dumps({"team_name": "default", "members": members}))
    return paths


def board(paths: TeamPaths, who: str) -> Board:
    post = MailRouter(paths, durable=False, max_bytes=10**6)
    return Board(paths, post, who, durable=False)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_one_process_wins_each_of_many_races_for_a_task(tmp_path: Path, rounds: int) -> None:
    paths = made(tmp_path)
    lead = board(paths, "lead")
    lead.add("Write it")
    wins: Counter[str] = Counter()
    with ExitStack() as stack:
        claimers = [stack.enter_context(child(CLAIMS, paths.root, n)) for n in ("alice", "bob")]
        for _ in range(rounds):
            said = _claimed_by_all(claimers)
            (winner,) = [words.split()[1] for words in said if words.startswith("won")]
            (loser,) = [words for words in said if words.startswith("lost")]
            assert f"task 1 is {winner}'s already" in loser
            assert lead.read().get("1").owner == winner
            wins[winner] += 1
            lead.update("1", Change(status=TaskStatus.PENDING))
    print(f"{rounds} claims by two processes: {dict(wins)}")  # noqa: T201 -- the figure
    assert wins.total() == rounds
    assert len(wins) == 2, "there was a race"


def _claimed_by_all(claimers: list[subprocess.Popen[str]]) -> list[str]:
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.write("go\n")
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.flush()
    return [claimer.stdout.readline() for claimer in claimers if claimer.stdout is not None]


def look(paths: TeamPaths) -> dict[str, Any]:
    """Return the tasks and the mail, each message once."""
    tasks = board(paths, "lead").read()
    assert not tasks.damaged
    post = MailRouter(paths, durable=False, max_bytes=10**6)
    facts: dict[str, Any] = {
        task.id: (str(task.status), task.owner, task.subject) for task in tasks.by_id.values()
    }
    for name in ("alice", "bob"):
        mail = {(m.id, m.content) for m in post.mailbox(name).peek()}
        facts[name] = sorted(content for _, content in mail)
    assert not any(task.untold for task in tasks.by_id.values())
    return facts


@pytest.mark.slow
@pytest.mark.parametrize("deed", DEEDS)
def test_a_change_that_is_killed_at_any_step_and_repeated_is_made_once(
    tmp_path: Path, deed: str
) -> None:
    """No partial change may be visible, and each recipient is informed once."""
    outcomes: list[dict[str, Any]] = []
    for kill in kill_at_each_step(least=10):
        paths = made(tmp_path / str(kill.number))
        lead = board(paths, "lead")
        lead.add("x", owner="alice")
        lead.add("y", owner="bob", blocked_by=("1",))
        lead.add("z")
        if deed == "take_next":
            lead.update("1", Change(status=TaskStatus.DELETED))

        def act(arm: Callable[[], None], paths: TeamPaths = paths) -> None:
            arm()
            DEEDS[deed](board(paths, "teamd" if deed == "release" else "alice"))

        kill.during(act)
        assert not lead.read().damaged
        assert kill.survived or survived(10**6, act)
        board(paths, "teamd").flush()
        outcomes.append(look(paths))
    assert [facts for facts in outcomes if facts != outcomes[-1]] == []
