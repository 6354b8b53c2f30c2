"""The tools of the board: the model's input and the results."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from teamd.board.board import Board
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.team.states import Status
from teamd.tools import CommandInput, Input, Result, Tool, ToolAccess, Toolbox, ToolError
from teamd.tools.board import ClaimTask, TaskCreate, TaskGet, TaskList, TaskUpdate
from tests.unit.life import enrol


@pytest.fixture
def board(tmp_path: Path) -> Board:
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths, alice=Status.WORKING, bob=Status.IDLE)
    return Board(paths, MailRouter(paths, durable=False, max_bytes=100_000), "alice", durable=False)


def board_tools(board: Board) -> list[Tool[Any]]:
    tools = [tool(board) for tool in (TaskCreate, TaskGet, TaskUpdate, TaskList)]
    return [*tools, ClaimTask(board, lambda: None)]


def run(board: Board, tool: str, key: str = "", **arguments: Any) -> Result:
    return asyncio.run(Toolbox(board_tools(board)).run(tool, arguments, key=key))


def test_a_task_is_made_claimed_and_completed(board: Board) -> None:
    assert run(board, "task_create", subject="Write it").text == "task_id: 1"
    made = run(board, "task_create", subject="Test it", blocked_by=["1"], role="tester")
    assert made.text == "task_id: 2"
    refused = run(board, "claim_task", task_id="2")
    assert refused.is_error
    assert "task 2 is blocked by task 1; take another one" in refused.text
    assert run(board, "claim_task", task_id="1").text == (
        "task_id: 1 is yours and in progress: Write it"
    )
    assert run(board, "task_list").text.splitlines() == [
        "task_id: 1 [in_progress, owner alice] Write it",
        "task_id: 2 [pending, blocked by 1, for a tester] Test it",
    ]
    assert run(board, "task_update", task_id="1", status="completed").text.splitlines() == [
        "task_id: 1 [completed, owner alice] Write it",
        "no longer blocked: task_id: 2 [pending, for a tester] Test it",
    ]
    shown = json.loads(run(board, "task_get", task_id="2").text)
    assert (shown["status"], shown["blocked_by"], shown["blocked"]) == ("pending", ["1"], False)


def test_a_call_repeated_after_a_crash_makes_one_task(board: Board) -> None:
    assert run(board, "task_create", key="n-3-0", subject="x").text == "task_id: 1"
    assert run(board, "task_create", key="n-3-0", subject="x").text == "task_id: 1"
    assert run(board, "task_create", key="n-3-1", subject="x").text == "task_id: 2"
    for tool in ("claim_task", "task_update"):
        arguments = {"status": "completed"} if tool == "task_update" else {}
        for _ in range(2):
            assert not run(board, tool, task_id="1", **arguments).is_error
    toolbox = Toolbox(board_tools(board))
    assert all(toolbox.facts(schema["name"]).repeatable for schema in toolbox.schemas())


def test_the_inputs_are_those_of_the_contract(board: Board) -> None:
    inputs = {
        schema["name"]: list(schema["input_schema"].get("properties", {}))
        for schema in Toolbox(board_tools(board)).schemas()
    }
    assert inputs == {
        "task_create": ["subject", "description", "blocked_by", "role", "check"],
        "task_get": ["task_id"],
        "task_update": [
            "task_id",
            "status",
            "owner",
            "add_blocked_by",
            "remove_blocked_by",
            "check",
        ],
        "task_list": [],
        "claim_task": ["task_id"],
    }


@pytest.mark.parametrize(
    "given",
    [1, "1", " 1\n", '"1"', "'1'", "`1`", "#1", "task_1", "task-1", "Task 1", "task #1", "task1",
     "task_id: 1", "task_id=1", 'task_id: "1"', "TASK_ID 1",
     1.0, "1.0", "01", "TASK_01", "task_1.0"],
)  # fmt: skip
def test_an_id_is_understood_as_models_write_it(board: Board, given: object) -> None:
    run(board, "task_create", subject="x")
    run(board, "task_create", subject="y", blocked_by=[given])
    assert json.loads(run(board, "task_get", task_id="2").text)["blocked_by"] == ["1"]
    assert json.loads(run(board, "task_get", task_id=given).text)["subject"] == "x"


@pytest.mark.parametrize(
    "given", ["-1", "1.5", "1.", "../1", "job_1", "1 2", "x1", "", "#", "1" * 99]
)
def test_text_that_only_resembles_an_id_is_refused(board: Board, given: str) -> None:
    run(board, "task_create", subject="x")
    refused = run(board, "task_get", task_id=given)
    assert refused == Result(text=f"no task has the id {given!r}; there are: 1", is_error=True)


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("task_get", {"task_id": "9"}, "no task has the id '9'; there are: 1"),
        ("task_get", {"task_id": "../1"}, "no task has the id '../1'"),
        ("task_create", {"subject": " "}, "a task needs a subject"),
        ("task_create", {"subject": "y", "blocked_by": ["9"]}, "no task has the id '9'"),
        ("task_update", {"task_id": "1", "status": "done"}, "bad input for task_update: status"),
        ("task_update", {"task_id": "1", "owner": "bbo"}, "no teammate named 'bbo'; the team is"),
        ("task_update", {"task_id": "1", "add_blocked_by": ["1"]}, "1 waits for 1"),
        ("task_update", {"task_id": "1", "status": "completed"}, "claim it before you complete"),
    ],
)
def test_an_impossible_change_is_refused_with_a_sentence(
    board: Board, tool: str, arguments: dict[str, Any], told: str
) -> None:
    run(board, "task_create", subject="x")
    before = board.read()
    result = run(board, tool, **arguments)
    assert result.is_error
    assert told in result.text
    assert board.read() == before


def test_the_list_reports_damaged_files_and_omits_deleted_tasks(
    board: Board, tmp_path: Path
) -> None:
    assert run(board, "task_list").text == "the board is empty"
    for subject in ("x", "y"):
        run(board, "task_create", subject=subject)
    run(board, "task_update", task_id="1", status="deleted")
    (tmp_path / ".team/tasks/2.json").write_text("{")
    assert "2.json is damaged (" in run(board, "task_list").text
    assert "[" not in run(board, "task_list").text


class Bash(Tool[CommandInput]):
    """A stand-in for the permission to run commands."""

    name: ClassVar[str] = "bash"
    description: ClassVar[str] = "Run it."
    Input = CommandInput


CHECKED = (
    ("task_create", {"subject": "x", "check": "git push"}),
    ("task_update", {"task_id": "1", "check": "git push"}),
)


@pytest.mark.parametrize(("name", "arguments"), CHECKED)
def test_setting_a_check_requires_the_bash_tool(
    board: Board, name: str, arguments: dict[str, object]
) -> None:
    """Otherwise a teammate could let teamd run a command that it may not run itself."""
    board.add("x")
    asked: list[tuple[str, str]] = []

    def permit(tool: str, given: Input, _key: str) -> str:
        if isinstance(given, CommandInput):
            asked.append((tool, given.command))
            raise ToolError("denied")
        return ""

    def call(box: Toolbox, granted: frozenset[str] | None = None) -> Result:
        return asyncio.run(box.run(name, arguments, granted=ToolAccess(workspace=granted)))

    tools: list[Tool[Any]] = [Bash(), *board_tools(board)]
    refused = "'git push' is a command, and you have no bash; mail lead about it"
    assert call(Toolbox(tools[1:])) == Result(text=refused, is_error=True)
    assert call(Toolbox(tools), frozenset({"read_file"})).text == refused
    planned = Toolbox(tools, gate=lambda tool: f"{tool} needs a plan")
    assert call(planned) == Result(text="bash needs a plan", is_error=True)
    assert call(Toolbox(tools, permit=permit)) == Result(text="denied", is_error=True)
    assert asked == [("bash", "git push")]
    assert not call(Toolbox(tools)).is_error
    assert board.read().get("2" if name == "task_create" else "1").check == "git push"
