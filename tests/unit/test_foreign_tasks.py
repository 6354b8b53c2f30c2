"""Tasks from other programs: a mistake in one is reported and hides no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teamd.board.board import Board
from teamd.board.rules import Change, describe_proof
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.team.states import Status
from tests.unit.life import enrol

FAILED = Attempt(time=1.0, seconds=2.0, status=3, command="false")
PASSED = replace(FAILED, status=0)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths, alice=Status.WORKING)
    return Board(paths, MailRouter(paths, durable=False, max_bytes=100_000), "alice", durable=False)


@pytest.fixture
def post(board: Board, tmp_path: Path) -> MailRouter:
    return MailRouter(TeamPaths(tmp_path / ".team"), durable=False, max_bytes=100_000)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"blocked_by": "2"}, "its 'blocked_by' is '2'"),
        ({"blocked_by": [{"id": 2}]}, "its 'blocked_by' is [{'id': 2}]"),
        ({"notes": {"a": 1}}, "its 'notes' is {'a': 1}"),
        ({"attempts": [{"status": "0"}]}, "an entry of its 'attempts' is not an attempt"),
        ({"attempts": [{"status": True}]}, "an entry of its 'attempts' is not an attempt"),
        ({"attempts": ["passed"]}, "an entry of its 'attempts' is not an attempt"),
        ({"untold": [{"content": "x"}]}, "an entry of its 'untold' is not a message"),
        ({"untold": ["x"]}, "an entry of its 'untold' is not a message"),
        (
            {"untold": [{"to": "bob", "from": "eve"}]},
            "an entry of its 'untold' is not a message: ",
        ),
    ],
)
def test_a_mistake_in_a_task_is_reported(
    board: Board, tmp_path: Path, fields: dict[str, Any], why: str
) -> None:
    board.add("sound")
    file = tmp_path / ".team" / "tasks" / "2.json"
    file.write_text(json.dumps({"subject": "x", **fields}))
    tasks = board.read()
    assert list(tasks.by_id) == ["1"]
    assert f"{file} is damaged ({why}" in tasks.damaged["2"]
    assert board.add("next").id == "3"


def test_a_task_that_is_nested_too_deeply_is_reported(board: Board, tmp_path: Path) -> None:
    """Python's RecursionError must not end a process that reads the board."""
    file = tmp_path / ".team" / "tasks" / "1.json"
    file.write_text('{"subject": ' + "[" * 100_000)
    assert "is damaged (it is nested too deeply)" in board.read().damaged["1"]


def test_one_damaged_task_reads_as_missing(board: Board, tmp_path: Path) -> None:
    """Checkers and the merge queue continue with other tasks."""
    board.add("x")
    found = board.read_one("1")
    assert found is not None
    assert found.subject == "x"
    (tmp_path / ".team" / "tasks" / "1.json").write_text("{")
    assert board.read_one("1") is None


@pytest.mark.parametrize(
    ("attempts", "word"),
    [
        ((FAILED,), "failed once"),
        ((FAILED, FAILED), "failed 2 times"),
        ((FAILED, PASSED, FAILED), "failed once"),
        ((FAILED, PASSED), "not yet"),
        ((), "not yet"),
    ],
)
def test_a_task_says_how_often_its_check_failed_since_it_last_passed(
    attempts: tuple[Attempt, ...], word: str
) -> None:
    task = Task(id="1", subject="x", check="true", attempts=attempts)
    assert describe_proof(task) == word


def test_a_long_check_is_cut_in_the_mail_about_it(board: Board, post: MailRouter) -> None:
    command = f"test {'x' * 294} && rm y"
    board.add("Write it", check=command)
    board.claim("1")
    task = board.update("1", Change(status=TaskStatus.COMPLETED)).task
    board.judge("1", task.claim, replace(FAILED, command=command), "", most=5)
    (mail,) = post.mailbox("alice").peek()
    assert f"failed: `{command[:300]} …` ended with exit status 3" in mail.content
    assert "rm y" not in mail.content


@pytest.mark.parametrize("more", [0, 1])
def test_a_long_description_is_cut_in_the_mail_to_the_owner(
    board: Board, post: MailRouter, more: int
) -> None:
    text = "d" * (2000 + more)
    board.add("Write it", description=text)
    assert board.take_next("tester") is not None
    (mail,) = post.mailbox("alice").peek()
    assert ("d" * 2000 in mail.content, text in mail.content) == (True, not more)
    assert ("d … (task_get shows all of it)" in mail.content) is bool(more)
