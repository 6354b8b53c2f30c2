"""`AGENTS.md`, or else `CLAUDE.md`: unchanged, bounded, and only from within the workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from teamd.agent.build import FILE_NAMES, MAX_BYTES, read_project_instructions
from teamd.tools.workspace import Workspace

FILE_NAME, SECOND = FILE_NAMES


def given(folder: Path) -> str:
    return read_project_instructions(Workspace(folder))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"Use tabs.\n", "Use tabs."),
        ("\ufeffÜber".encode(), "Über"),
        (b"a\xffb\0c", "a\ufffdb\ufffdc"),
    ],
)
def test_the_instructions_follow_the_system_prompt(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    said = given(tmp_path)
    assert said.startswith("\n\nAGENTS.md of the workspace, ")
    assert said.endswith(f":\n\n{text}")


@pytest.mark.parametrize("data", [None, b"", b" \n"])
def test_without_a_file_the_prompt_is_unchanged(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / FILE_NAME).write_bytes(data)
    assert given(tmp_path) == ""


def test_long_instructions_are_cut_with_a_note(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"x" * (MAX_BYTES + 5))
    said = given(tmp_path)
    assert said.count("x") < MAX_BYTES + 10
    assert f"[cut here: AGENTS.md has {MAX_BYTES + 5} bytes; read the rest" in said


def test_a_path_that_is_not_a_regular_file_is_skipped(tmp_path: Path) -> None:
    """A FIFO would block every teammate of the team forever."""
    os.mkfifo(tmp_path / FILE_NAME)
    assert given(tmp_path) == ""


def test_a_link_may_lead_to_another_file_of_the_workspace_only(tmp_path: Path) -> None:
    """Otherwise a writer in the workspace could read other files through the next prompt."""
    inside, outside = tmp_path / "work" / "CLAUDE.md", tmp_path / "secret"
    inside.parent.mkdir()
    inside.write_text("Use tabs.")
    outside.write_text("key")
    link = tmp_path / "work" / FILE_NAME
    link.symlink_to("CLAUDE.md")
    assert given(tmp_path / "work").endswith("Use tabs.")
    link.unlink()
    link.symlink_to(outside)
    inside.unlink()
    assert given(tmp_path / "work") == ""


def test_claude_md_is_read_if_there_is_no_agents_md(tmp_path: Path) -> None:
    (tmp_path / SECOND).write_text("Use spaces.")
    assert given(tmp_path).endswith(
        "\n\nCLAUDE.md of the workspace, which holds for everybody who works in it:\n\nUse spaces."
    )
    (tmp_path / FILE_NAME).write_text("Use tabs.")
    assert given(tmp_path).endswith("Use tabs.")
    assert "CLAUDE.md" not in given(tmp_path)
