"""The toolbox: for any call of the model, the answer is a result that it can act on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from teamd.errors import StoreError, TeamError
from teamd.masking import MASK, Mask
from teamd.settings.known_tools import TOOLS, KnownTool
from teamd.tools import Input, Result, Tool, ToolAccess, Toolbox, ToolError, load_tools, make_tools
from teamd.tools.board import TaskList
from teamd.tools.context import ToolContext


class Words(Input):
    """The input of `Echo`."""

    words: str
    times: int = Field(default=1, gt=0, le=9)


class Echo(Tool[Words]):
    """Repeats its input; `fail` turns the input into an exception."""

    name: ClassVar[str] = "echo"
    description: ClassVar[str] = "Say it again."
    Input = Words

    def __init__(self, fail: Callable[[str], Exception] | None = None) -> None:
        self._fail = fail

    async def call(self, arguments: Words, _key: str) -> str:
        if self._fail:
            raise self._fail(arguments.words)
        return arguments.words * arguments.times


def run(arguments: object, name: str = "echo", tool: Echo | None = None) -> Result:
    return asyncio.run(Toolbox([tool or Echo()]).run(name, arguments))


def test_a_call_returns_the_output_of_the_tool() -> None:
    assert run({"words": "ab", "times": 2}) == Result(text="abab")


@pytest.mark.parametrize("words", ["", " ", "\n\t"])
def test_a_result_is_never_empty(words: str) -> None:
    """The API refuses a text block without text."""
    assert run({"words": words}) == Result(text="(no output)")


def test_an_unknown_tool_is_reported_with_the_known_ones() -> None:
    result = run({}, name="ech\0o")
    assert result == Result(text="no tool named 'ech\\x00o'; there are: echo", is_error=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "words: Field required"),
        ({"words": 1}, "words: Input should be a valid string"),
        ({"words": "x", "times": 0}, "times: Input should be greater than 0"),
        ({"words": "x", "wrods": "y"}, "wrods: Extra inputs are not permitted"),
        (None, "input: "),
        ([1], "input: "),
        ("words", "input: "),
    ],
)
def test_bad_input_is_explained(arguments: object, told: str) -> None:
    result = run(arguments)
    assert result.is_error
    assert told in result.text
    assert result.text.endswith("It takes an object with: words, times?")


@pytest.mark.parametrize("fail", [ToolError, OSError, TeamError, StoreError])
def test_a_failure_is_a_result(fail: Callable[[str], Exception]) -> None:
    assert run({"words": "no space"}, tool=Echo(fail)) == Result(text="no space", is_error=True)


def test_a_failure_without_a_message_is_reported_by_its_type() -> None:
    assert run({"words": " "}, tool=Echo(ToolError)) == Result(text="ToolError", is_error=True)


@given(
    st.one_of(
        st.dictionaries(
            st.sampled_from(["words", "times"]) | st.text(st.characters(codec=None), max_size=3),
            st.text(st.characters(codec=None)) | st.integers() | st.none(),
        ),
        st.fixed_dictionaries({"words": st.text(st.characters(codec=None))}),
    )
)
def test_any_result_text_can_be_sent(arguments: object) -> None:
    """A NUL or a lone surrogate in a request would make the conversation unusable."""
    for tool in (Echo(), Echo(ToolError)):
        result = run(arguments, tool=tool)
        assert result.text.strip()
        assert "\0" not in result.text
        assert result.text.encode()


class Many(Input):
    """One parameter of each kind."""

    ids: tuple[str, ...] = Field(default=(), description="of tasks")
    state: Literal["open", "over"] | None = None
    seconds: Annotated[int, Field(gt=0, description="at most")] | None = None


class Sort(Tool[Many]):
    """Has a parameter of each kind."""

    name: ClassVar[str] = "sort"
    description: ClassVar[str] = "Sort it."


def test_a_schema_contains_only_useful_keys() -> None:
    """Titles, bounds, nulls and empty defaults would cost tokens in each request."""
    echo, sort = Toolbox([Echo(), Sort()]).schemas()
    assert (echo["name"], echo["description"]) == ("echo", "Say it again.")
    assert echo["input_schema"] == {
        "type": "object",
        "properties": {"words": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["words"],
    }
    assert sort["input_schema"] == {
        "type": "object",
        "properties": {
            "ids": {"type": "array", "description": "of tasks", "items": {"type": "string"}},
            "state": {"type": "string", "enum": ["open", "over"]},
            "seconds": {"type": "integer", "description": "at most"},
        },
    }


def test_a_tool_without_parameters_has_an_empty_object() -> None:
    """Some servers refuse a schema without `properties`."""
    assert TaskList.describe()["input_schema"] == {"type": "object", "properties": {}}


def made(*holder: str) -> set[str]:
    facts = dict.fromkeys((one.name for one in fields(ToolContext)), None)
    context: Any = SimpleNamespace(**facts | {"holder": frozenset(holder)})
    return {tool.name for tool in make_tools(context)}


def test_every_known_tool_is_made_from_a_context_for_its_holders() -> None:
    """A parameter that is not a field of the context fails here."""
    mates, lead, approver = made("teammate"), made("lead"), made("lead", "approver")
    assert mates | approver == set(TOOLS)
    assert mates - lead == {"submit_plan"}
    assert approver - lead == {"review_permission"}
    assert {"spawn_teammate", "task", "review_plan", "broadcast"} <= lead - mates
    assert [kind.name for kind in load_tools()] == list(TOOLS)
    assert [kind.name for kind in load_tools() if kind.facts.for_subagents] == [
        *("bash", "read_file", "write_file", "edit_file", "load_skill")
    ]


def test_a_result_of_any_length_is_cut_with_a_note() -> None:
    """For example a list of the whole board: a result is one line of a transcript."""
    result = run({"words": "x" * 1_000_000, "times": 9})
    assert len(result.text) < 4_200_000
    assert "bytes cut …]" in result.text


class Shell(Echo):
    """An echo that reaches the workspace."""

    name: ClassVar[str] = "shell"
    facts: ClassVar[KnownTool] = KnownTool(acts=True, grantable=True)
    Input = Words


def test_equal_tool_access_gives_the_same_list_object() -> None:
    """So cached facts about a list, such as its digest, are not computed again."""
    toolbox = Toolbox([Echo(), Shell()])
    all_of_them = ["echo", "shell"]
    for granted, names in [
        (ToolAccess(), all_of_them),
        (ToolAccess(workspace=frozenset()), ["echo"]),
        (ToolAccess(workspace=frozenset({"shell"})), all_of_them),
        (ToolAccess(dropped=frozenset({"echo"})), ["shell"]),
        (ToolAccess(workspace=frozenset({"shell"}), dropped=frozenset({"shell"})), ["echo"]),
        (ToolAccess(), all_of_them),
    ]:
        shown = toolbox.schemas(granted)
        assert [schema["name"] for schema in shown] == names
        assert toolbox.schemas(granted) is shown


def test_a_dropped_tool_does_not_run() -> None:
    box = Toolbox([Echo(), Shell()])
    granted = ToolAccess(dropped=frozenset({"echo"}))
    refused = asyncio.run(box.run("echo", {"words": "x"}, granted=granted))
    assert refused == Result(text="no tool named 'echo'; there are: shell", is_error=True)


@pytest.mark.parametrize("fail", [None, ToolError])
def test_a_result_contains_no_secret(fail: Callable[[str], Exception] | None) -> None:
    box = Toolbox([Shell(fail)], mask=Mask("sk-12345"))
    result = asyncio.run(box.run("shell", {"words": "a sk-12345"}))
    assert result == Result(text=f"a {MASK}", is_error=fail is not None)
    unknown = asyncio.run(box.run("sk-12345", {}))
    assert unknown.text == f"no tool named '{MASK}'; there are: shell"


@pytest.mark.parametrize(("tool", "got"), [(Echo, MASK), (Shell, "sk-12345")])
def test_only_workspace_tools_get_the_models_input_unmasked(tool: type[Echo], got: str) -> None:
    """Mail, tasks and plans reach others' disks and models; a command must run literally."""
    given: list[str] = []

    def refuse(words: str) -> Exception:
        given.append(words)
        return ToolError("kept")

    asyncio.run(
        Toolbox([tool(refuse)], mask=Mask("sk-12345")).run(tool.name, {"words": "sk-12345"})
    )
    assert given == [got]


def test_the_note_of_a_permission_is_also_shown_above_a_failure() -> None:
    box = Toolbox([Echo(ToolError)], permit=lambda *_: "[approved by user: gently]\n")
    result = asyncio.run(box.run("echo", {"words": "no"}))
    assert result == Result(text="[approved by user: gently]\nno", is_error=True)
