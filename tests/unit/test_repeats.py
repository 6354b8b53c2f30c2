"""Twelve ways to repeat calls are stopped, and twelve kinds of ordinary work are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from teamd.agent.repeats import Repeats
from teamd.tools import Input, Result, Tool, Toolbox

Step = tuple[str, Any, Result]


class Anything(Input):
    """Any input."""


class Look(Tool[Anything]):
    """A tool that only looks at something."""

    name: ClassVar[str] = "look"
    description: ClassVar[str] = "Look."
    looks: ClassVar[bool] = True


class Edit(Tool[Anything]):
    """A tool that changes a file each time."""

    name: ClassVar[str] = "edit"
    description: ClassVar[str] = "Edit."
    changes: ClassVar[bool] = True


class Run(Tool[Anything]):
    """A tool that may change something, such as a command or a message."""

    name: ClassVar[str] = "run"
    description: ClassVar[str] = "Run."


TOOLBOX = Toolbox([Look(), Edit(), Run()])


def step(name: str, given: Any = "x", text: str = "the same", *, fails: bool = False) -> Step:
    return name, given, Result(text=text, is_error=fails)


def play(*steps: Step) -> tuple[list[int], list[int]]:
    """Return the numbers of the calls that were warned of, and of the call that ended the turn."""
    repeats, warned, ended = Repeats(TOOLBOX), [], []
    for place, (name, given, result) in enumerate(steps, start=1):
        shown = repeats.judge({"name": name, "input": {"given": given}}, result)
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
    # The first run of the second may have changed something.
    "runs two commands in turn": (
        [RUNS, step("run", "y")] * 9, [6, 7, 8, 9, 10, 11], 12,
    ),
    "runs a command and looks": ([RUNS, LOOKS] * 9, [5, 6, 7, 8, 9, 10], 11),
    "makes edits that fail, and tests": ([FAILS, RUNS] * 9, [6, 7, 8, 9, 10, 11], 12),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "warned", "end"), REPEATING.values(), ids=REPEATING.keys())
def test_who_repeats_a_call_is_warned_and_then_stopped(
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
    "back and forth between two edits": [step("edit", "there"), step("edit", "back")] * 20,
}


@pytest.mark.parametrize("steps", WORKING.values(), ids=WORKING.keys())
def test_ordinary_work_is_left_alone(steps: Sequence[Step]) -> None:
    assert play(*steps) == ([], [])


def test_what_has_happened_besides_is_a_reason_to_call_again() -> None:
    repeats = Repeats(TOOLBOX)
    call, result = {"name": "look", "input": {}}, Result(text="nothing")
    for _ in range(20):
        assert repeats.judge(call, result) == repeats.judge(call, result) == result
        repeats.forget()
