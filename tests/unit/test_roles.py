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


def test_the_first_folder_that_has_the_role_counts(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours", "reviewer", "Ours.")
    theirs = write(tmp_path / "theirs", "reviewer", "Theirs.")
    write(theirs, "tester", "Test.")
    found = roles.find("reviewer", [ours, theirs])
    assert found is not None
    assert found.instructions == "Ours."
    assert roles.find("tester", [ours, theirs]) is not None
    assert roles.find("cook", [ours, theirs, tmp_path / "missing"]) is None


def test_tool_names_of_other_programs_are_translated(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "r", "---\ntools: Read, Grep, Bash(git *), send_message\n---\n")
    found = roles.find("r", [folder])
    assert found is not None
    assert found.tools is not None
    assert {"read_file", "bash", "background_run", "send_message"} <= found.tools
    assert not {"write_file", "edit_file"} & found.tools


@pytest.mark.parametrize("tools", ['"*"', "*", '["*"]', "Read, *"])
def test_a_star_among_the_tools_means_all(tmp_path: Path, tools: str) -> None:
    """Taken as the name of a tool it would remove every tool."""
    found = roles.find("r", [write(tmp_path / "a", "r", f"---\ntools: {tools}\n---\nBody")])
    assert found is not None
    assert found.tools is None


def test_without_a_tools_line_all_tools_are_granted_and_an_empty_one_grants_none(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "a", "all", "Body")
    write(folder, "none", "---\ntools: []\n---\nBody")
    everything, nothing = roles.find("all", [folder]), roles.find("none", [folder])
    assert everything is not None
    assert everything.tools is None
    assert nothing is not None
    assert nothing.tools == frozenset()


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
    found = roles.find("r", [write(tmp_path / "a", "r", f"---\n{front}\n---\nBody")])
    assert found is not None
    assert set(dropped) <= found.dropped_tools(team)
    assert not set(kept) & found.dropped_tools(team)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sonnet", "claude-sonnet-5-5"),
        ("inherit", None),
        ("claude-opus-4-8", "claude-opus-4-8"),
        ("", None),
    ],
)
def test_a_model_is_a_name_or_the_short_form_of_one(
    tmp_path: Path, written: str, meant: str | None
) -> None:
    folder = write(tmp_path / "a", "r", f"---\nmodel: {written}\n---\n")
    found = roles.find("r", [folder])
    assert found is not None
    assert found.model == meant


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


def test_a_role_may_set_an_effort(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "hard", "---\neffort: xhigh\n---\nBody")
    write(folder, "same", "---\neffort: inherit\n---\nBody")
    hard, same = roles.find("hard", [folder]), roles.find("same", [folder])
    assert hard is not None
    assert same is not None
    assert (hard.effort, same.effort) == ("xhigh", None)


def test_an_unknown_effort_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "r", "---\neffort: 11\n---\nBody")
    with pytest.raises(SettingsError) as caught:
        roles.find("r", [folder])
    assert caught.value.mistakes == (
        "effort must be low, medium, high, xhigh, max or inherit, not '11'",
    )
