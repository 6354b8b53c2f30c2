"""Two teammates edit one file in one folder, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EDITS = 200
TEAMMATE = """
import asyncio, sys
from pathlib import Path
from teamd.tools import Toolbox
from teamd.tools.filesystem import EditFile, ReadFile, WriteFile
from teamd.tools.versions import SeenFiles, Versions, WrittenFiles
from teamd.tools.workspace import Workspace

root, name, edits = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
state, workspace = root.parent / "state", Workspace(root)
seen = SeenFiles(state / f"{name}.jsonl", lambda: "one")
versions = Versions(WrittenFiles(state / "written.jsonl"), seen, lambda: f"{name}@team")
facts = {"workspace": workspace, "versions": versions}
box = Toolbox([ReadFile(output_bytes=50_000, **facts), WriteFile(**facts), EditFile(**facts)])

async def work():
    refused = set()
    for n in range(edits):
        while True:
            new = f"{name} {n}\\nend"
            if n % 2:
                call = "edit_file", {"path": "a", "old_text": "end", "new_text": new}
            else:
                text = (root / "a").read_text().replace("end", new)
                call = "write_file", {"path": "a", "content": text}
            result = await box.run(*call)
            if not result.is_error:
                break
            refused.add(result.text.partition(" at ")[0])
            await box.run("read_file", {"path": "a"})
    for why in refused:
        print(why)

asyncio.run(work())
"""


@pytest.mark.slow
def test_no_edit_is_lost_without_a_refusal(tmp_path: Path) -> None:
    """A write of the whole file that was read without the tools is refused."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("begin\nend\n")
    words = [sys.executable, "-c", TEAMMATE, str(root)]
    teammates = [
        subprocess.Popen([*words, name, str(EDITS)], stdout=subprocess.PIPE, text=True)
        for name in ("alice", "bob")
    ]
    said = [teammate.communicate(timeout=100)[0] for teammate in teammates]
    assert [teammate.returncode for teammate in teammates] == [0, 0]
    lines = (root / "a").read_text().splitlines()
    for name in ("alice", "bob"):
        own = [line for line in lines if line.startswith(name)]
        assert own == [f"{name} {n}" for n in range(EDITS)]
    assert len(lines) == 2 + 2 * EDITS
    for other, text in zip(("bob", "alice"), said, strict=True):
        assert f"a has changed since you read it: {other} wrote" in text
