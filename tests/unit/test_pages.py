"""Pages of a file that start past its end, and binary content."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from teamd.tools import Result, Toolbox
from teamd.tools.filesystem import ReadFile
from teamd.tools.versions import Versions, WrittenFiles
from teamd.tools.workspace import Workspace


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    (tmp_path / "root").mkdir()
    versions = Versions(WrittenFiles(tmp_path / "state" / "written.jsonl"))
    workspace = Workspace(tmp_path / "root")
    return Toolbox([ReadFile(workspace=workspace, versions=versions, output_bytes=1000)])


def read(box: Toolbox, **arguments: object) -> Result:
    return asyncio.run(box.run("read_file", {"path": "a", **arguments}))


def test_a_page_far_past_the_end_says_how_long_the_file_is(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "root" / "a").write_text("1\n2\n3")
    said = "a has 3 lines; offset 9 is past its end"
    assert read(box, offset=9) == Result(text=said, is_error=True)


def test_a_binary_file_that_begins_like_a_text_is_not_shown_as_text(
    box: Toolbox, tmp_path: Path
) -> None:
    """Its first lines are shown: only a part of the file is examined."""
    (tmp_path / "root" / "a").write_bytes(b"x\n" * 5000 + b"\0\n")
    assert read(box, limit=1).text.startswith("     1\tx\n")
    said = "a is not UTF-8 text; look at it with bash: file, xxd, iconv"
    assert read(box, offset=5001) == Result(text=said, is_error=True)
