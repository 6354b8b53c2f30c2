"""Role files: finding them, and the tools that they grant."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import SettingsError
from teamd.settings import roles

BASIC = ["bash", "read_file", "write_file", "edit_file", "send_message"]


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


def test_the_first_folder_that_has_the_role_is_used(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours", "reviewer", "Ours.")
    theirs = write(tmp_path / "theirs", "reviewer", "Theirs.")
    write(theirs, "tester", "Test.")
    found = roles.find("reviewer", [ours, theirs])
    assert found is not None
    assert found.instructions == "Ours."
    assert roles.find("tester", [ours, theirs]) is not None
    assert roles.find("cook", [ours, theirs, tmp_path / "missing"]) is None


def role(folder: Path, front: str) -> roles.Role:
    """Return the role of a file with this front matter."""
    found = roles.find("r", [write(folder / "a", "r", f"---\n{front}\n---\nBody")])
    assert found is not None
    return found


def test_tool_names_of_other_programs_are_translated(tmp_path: Path) -> None:
    tools = role(tmp_path, "tools: Read, Grep, Bash(git *), send_message").tools
    assert tools is not None
    assert {"read_file", "bash", "background_run", "send_message"} <= tools
    assert not {"write_file", "edit_file"} & tools


@pytest.mark.parametrize("front", ['tools: "*"', "tools: *", 'tools: ["*"]', "tools: Read, *", ""])
def test_a_star_or_a_missing_tools_line_means_all_tools(tmp_path: Path, front: str) -> None:
    """Taken as the name of a tool a star would remove every tool."""
    assert role(tmp_path, front).tools is None


def test_an_empty_list_of_tools_grants_none(tmp_path: Path) -> None:
    assert role(tmp_path, "tools: []").tools == frozenset()


@pytest.mark.parametrize(
    ("front", "team", "dropped", "kept"),
    [
        ("", "all", [], ["bash", "task_list", "submit_plan", "shutdown_response"]),
        ("", "basic", ["background_run", "task_list", "submit_plan", "shutdown_response"], BASIC),
        ("tools: basic", "all", ["background_run", "task_list", "load_skill"], BASIC),
        ("tools: all", "basic", [], ["bash", "task_list"]),
        ('tools: "*"', "basic", [], ["bash", "task_list"]),
        ("tools: [bash]", "basic", ["task_list"], BASIC),
        ("disallowedTools: task_list, submit_plan", "all", ["task_list", "submit_plan"], BASIC),
        ("disallowedTools: [Bash]", "all", ["bash", "background_run"], ["task_list"]),
        ("tools: basic\ndisallowedTools: send_message", "all", ["send_message"], ["bash"]),
    ],
)
def test_any_tool_can_be_dropped(
    tmp_path: Path, front: str, team: str, dropped: list[str], kept: list[str]
) -> None:
    found = role(tmp_path, front)
    assert set(dropped) <= found.dropped_tools(team)
    assert not set(kept) & found.dropped_tools(team)


@pytest.mark.parametrize(
    ("front", "model", "effort"),
    [
        ("model: sonnet", "claude-sonnet-5-5", None),
        ("model: inherit\neffort: inherit", None, None),
        ("model: claude-opus-4-8\neffort: xhigh", "claude-opus-4-8", "xhigh"),
        ("model: ", None, None),
    ],
)
def test_a_model_is_a_name_or_the_short_form_of_one(
    tmp_path: Path, front: str, model: str | None, effort: str | None
) -> None:
    found = role(tmp_path, front)
    assert (found.model, found.effort) == (model, effort)


@given(st.text())
def test_a_role_cannot_name_a_file_outside_its_folder(role: str) -> None:
    """A role is any text; only plain names are looked up as files."""

    class Trap:
        def __truediv__(self, name: str) -> Trap:
            assert "/" not in name
            assert not name.startswith(".")
            return self

        def is_file(self) -> bool:
            return False

    assert roles.find(role, [Trap()]) is None  # type: ignore[list-item]


def test_an_unknown_effort_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        role(tmp_path, "effort: 11")
    assert caught.value.mistakes == (
        "effort must be low, medium, high, xhigh, max or inherit, not '11'",
    )
