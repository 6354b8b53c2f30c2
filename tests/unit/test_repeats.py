"""Repeated calls that are stopped, and ordinary work that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from teamd.agent.turn import Repeats
from teamd.programs import Sink
from teamd.settings.known_tools import KnownTool
from teamd.tools import NO_OUTPUT, Input, Result, Tool, Toolbox
from teamd.tools.background import CheckBackground, Jobs
from teamd.tools.board import TaskCreateInput, TaskGetInput
from teamd.tools.filesystem import EditInput, ReadInput, WriteInput
from teamd.tools.shell import BashInput

Step = tuple[str, Any, Result]


class Anything(Input):
    """Any input; `given` may say that a job still runs."""

    given: Any = None


class Look(Tool[Anything]):
    """A tool that only reads."""

    name: ClassVar[str] = "look"
    description: ClassVar[str] = "Look."
    facts: ClassVar[KnownTool] = KnownTool(acts=False, looks=True)

    def is_under_way(self, arguments: Anything) -> bool:
        """Return whether the input is that of a running job."""
        return bool(arguments.given == "running")


class Edit(Tool[Anything]):
    """A tool that changes a file each time."""

    name: ClassVar[str] = "edit"
    description: ClassVar[str] = "Edit."
    facts: ClassVar[KnownTool] = KnownTool(acts=True, changes=True)


class Run(Tool[Anything]):
    """A tool that may change its surroundings, such as a command or a message."""

    name: ClassVar[str] = "run"
    description: ClassVar[str] = "Run."


TOOLBOX = Toolbox([Look(), Edit(), Run()])


def step(name: str, given: Any = "x", text: str = "the same", *, fails: bool = False) -> Step:
    return name, given, Result(text=text, is_error=fails)


def play(*steps: Step, seconds: float = 0.0) -> tuple[list[int], list[int]]:
    """Return the numbers of the warned calls, and of the call that ended the turn."""
    repeats, warned, ended = Repeats(TOOLBOX), [], []
    for place, (name, given, result) in enumerate(steps, start=1):
        call = {"name": name, "input": {"given": given}}
        shown = repeats.judge(call, result, seconds=seconds)
        if repeats.stuck_at:
            assert repeats.stuck_at == name
            ended.append(place)
            break
        if shown != result:
            assert shown.is_error
            assert shown.text.endswith(result.text), "a result that was cleared may be needed"
            warned.append(place)
    return warned, ended


LOOKS = step("look")
RUNS = step("run")
FAILS = step("edit", fails=True)
SILENT = step("run", "printf x >> grow.txt", NO_OUTPUT)

REPEATING: dict[str, tuple[Sequence[Step], list[int], int]] = {
    "looks at the same": ([LOOKS] * 9, [3, 4, 5], 6),
    "runs the same command": ([RUNS] * 9, [3, 4, 5], 6),
    "makes the same edit": ([step("edit")] * 9, [3, 4, 5], 6),
    "fails in the same way": ([FAILS] * 9, [3, 4, 5], 6),
    "calls a tool that does not exist": ([step("nothing", fails=True)] * 9, [3, 4, 5], 6),
    "fails, each time in other words": (
        [step("run", text=str(n), fails=True) for n in range(9)], [3, 4, 5], 6,
    ),
    "sends what was sent already": (
        [RUNS, *[step("run", text="not sent again", fails=True)] * 8], [3, 4, 5], 6,
    ),
    "writes its keys in another order": (
        [step("look", given) for given in ({"a": 1, "b": 2}, {"b": 2, "a": 1})] * 5, [3, 4, 5], 6,
    ),
    "looks at two things in turn": (
        [LOOKS, step("look", "y")] * 9, [5, 6, 7, 8, 9, 10], 11,
    ),
    # The first run of the second command may have changed its result.
    "runs two commands in turn": (
        [RUNS, step("run", "y")] * 9, [6, 7, 8, 9, 10, 11], 12,
    ),
    "runs a command and looks": ([RUNS, LOOKS] * 9, [5, 6, 7, 8, 9, 10], 11),
    "runs the same command without output": ([SILENT] * 9, [3, 4, 5], 6),
    "makes edits that fail, and tests": ([FAILS, RUNS] * 9, [6, 7, 8, 9, 10, 11], 12),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "warned", "end"), REPEATING.values(), ids=REPEATING.keys())
def test_a_repeated_call_causes_a_warning_and_then_ends_the_turn(
    steps: Sequence[Step], warned: list[int], end: int
) -> None:
    assert play(*steps) == (warned, [end])


WORKING: dict[str, Sequence[Step]] = {
    "edit, test, edit, test": [step("edit", "a"), RUNS, step("edit", "b"), RUNS] * 20,
    "edits by commands, and a test": [
        one for n in range(30) for one in (step("run", n), step("run", "test"))
    ],
    "an edit, and a look at another file": [
        one for n in range(20) for one in (step("edit", n), LOOKS)
    ],
    "one file after the other": [step("look", n) for n in range(40)],
    "the same number of lines of each": [step("run", n) for n in range(40)],
    "a job that makes progress": [step("look", text=str(n)) for n in range(40)],
    "a test whose output tells the time": [step("run", text=str(n)) for n in range(40)],
    "mail to each, and a look at the inbox": [
        one for n in range(20) for one in (step("run", f"to {n}"), step("look", "inbox"))
    ],
    "a look before and after": [LOOKS, step("run", 1), LOOKS, LOOKS],
    "an edit that fails, read again, corrected": [
        one for n in range(20) for one in (FAILS, LOOKS, step("edit", n))
    ],
    "the same twice": [LOOKS, LOOKS, RUNS, RUNS, FAILS, FAILS],
    "a command without output, and a test that still fails": [SILENT, RUNS] * 20,
    "a command without output, and a look": [SILENT, LOOKS] * 20,
    "back and forth between two edits": [step("edit", "there"), step("edit", "back")] * 20,
}


@pytest.mark.parametrize("steps", WORKING.values(), ids=WORKING.keys())
def test_ordinary_work_does_not_cause_a_warning(steps: Sequence[Step]) -> None:
    assert play(*steps) == ([], [])


WAITING: dict[str, tuple[Step, float]] = {
    "sleep 1; git status": (step("run", "sleep 1; git status"), 1.0),
    "a test that takes a minute and fails": (step("run", fails=True), 60.0),
    "a look at a job that runs": (step("look", "running"), 0.0),
}


@pytest.mark.parametrize(("call", "seconds"), WAITING.values(), ids=WAITING.keys())
def test_waiting_causes_a_warning_but_never_ends_the_turn(call: Step, seconds: float) -> None:
    assert play(*[call] * 20, seconds=seconds) == (list(range(3, 21)), [])


def test_after_other_events_the_same_call_is_allowed_again() -> None:
    repeats = Repeats(TOOLBOX)
    call, result = {"name": "look", "input": {}}, Result(text="nothing")
    for _ in range(20):
        assert repeats.judge(call, result) == repeats.judge(call, result) == result
        repeats.forget()


EDIT = {"old_text": "a", "new_text": "b"}
SAME: dict[str, tuple[type[Input], Sequence[dict[str, Any]]]] = {
    "an id": (TaskGetInput, [{"task_id": one} for one in (1, "#1", "task_1", "'1'")]),
    "a default": (
        ReadInput,
        [{"path": "x"}, {"path": "x", "offset": 1}, {"path": "x", "limit": 2000}],
    ),
    "a number": (ReadInput, [{"path": "x", "offset": one} for one in (5, 5.0, "5")]),
    "a path": (ReadInput, [{"path": one} for one in ("x/y", "./x/y", "x//y", "x/./y")]),
    "a path to write": (WriteInput, [{"path": one, "content": "a"} for one in ("x", "./x")]),
    "a path to edit": (EditInput, [{"path": one, **EDIT} for one in ("x", "./x")]),
    "a limit of time": (BashInput, [{"command": "ls", "timeout": one} for one in (1, 2, None)]),
    "a purpose": (BashInput, [{"command": "ls"}, {"command": "ls", "description": "Look."}]),
    "white space": (BashInput, [{"command": one} for one in ("ls", "ls  ", " ls\n")]),
}


@pytest.mark.parametrize(("kind", "calls"), SAME.values(), ids=SAME.keys())
def test_a_call_that_is_spelled_differently_is_the_same_call(
    kind: type[Input], calls: Sequence[dict[str, Any]]
) -> None:
    found = [kind.model_validate(call).identity() for call in calls]
    assert found == [found[0]] * len(calls)


OTHER: dict[str, tuple[type[Input], Sequence[dict[str, Any]]]] = {
    "a file": (ReadInput, [{"path": "x"}, {"path": "y"}, {"path": "../x"}, {"path": "/x"}]),
    "a page": (ReadInput, [{"path": "x"}, {"path": "x", "offset": 2}]),
    "a content": (WriteInput, [{"path": "x", "content": "a"}, {"path": "x", "content": "a "}]),
    "a task": (TaskCreateInput, [{"subject": "x"}, {"subject": "x", "description": "y"}]),
    "a command": (BashInput, [{"command": "ls a b"}, {"command": "ls a  b"}]),
}


@pytest.mark.parametrize(("kind", "calls"), OTHER.values(), ids=OTHER.keys())
def test_a_different_input_makes_a_different_call(
    kind: type[Input], calls: Sequence[dict[str, Any]]
) -> None:
    found = [kind.model_validate(call).identity() for call in calls]
    assert all(found.count(one) == 1 for one in found)


def test_another_spelling_of_a_call_does_not_restart_its_count() -> None:
    repeats = Repeats(TOOLBOX)
    spelled = [{}, {"given": None}, {}]
    shown = [repeats.judge({"name": "look", "input": one}, Result(text="x")) for one in spelled]
    assert [one.is_error for one in shown] == [False, False, True]


def test_a_job_is_running_until_it_ends(tmp_path: Path) -> None:
    async def scenario() -> list[bool]:
        end = asyncio.Event()

        async def work(_: Sink) -> str:
            await end.wait()
            return "done"

        jobs = Jobs(tmp_path / "jobs", ring=lambda: None)
        box = Toolbox([CheckBackground(jobs, output_bytes=100)])

        def look() -> list[bool]:
            calls = map(box.parse, ["check_background"] * 3, [{}, {"job_id": 1}, {"job_id": 2}])
            return [box.is_under_way("check_background", call) for call in calls if call]

        before = look()
        jobs.start("make", work)
        during = look()
        end.set()
        await jobs.stop("1")
        return [*before, *during, *look()]

    nothing = [False, False, False]
    assert asyncio.run(scenario()) == [*nothing, True, True, False, *nothing]
