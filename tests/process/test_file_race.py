"""The file tools against a command that swaps a folder for a link while they work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from teamd.tools import Toolbox
from teamd.tools.filesystem import ReadFile, WriteFile
from teamd.tools.versions import Versions, WrittenFiles
from teamd.tools.workspace import Workspace
from tests.waiting import wait_until

SWAP = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
HERE, EXCHANGE = -100, 2
while True:
    assert libc.renameat2(HERE, b"folder", HERE, b"link", EXCHANGE) == 0, ctypes.get_errno()
    open("swapping", "a").close()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no path goes through a descriptor there")
def test_a_swapped_link_does_not_lead_out_of_the_workspace(tmp_path: Path) -> None:
    """A sandboxed command may write only the workspace; the process of the tools may write more."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    (root / "folder/read").write_text("mine\n")
    (outside / "read").write_text("secret")
    (root / "link").symlink_to("../outside")
    workspace = Workspace(root)
    versions = Versions(WrittenFiles(tmp_path / "state" / "written.jsonl"))
    box = Toolbox(
        [
            ReadFile(workspace=workspace, versions=versions, output_bytes=1000),
            WriteFile(workspace=workspace, versions=versions),
        ]
    )

    async def use() -> set[str]:
        texts = set()
        for n in range(300):
            texts.add((await box.run("read_file", {"path": "folder/read"})).text)
            arguments = {"path": f"folder/{n % 10}", "content": "x"}
            texts.add((await box.run("write_file", arguments)).text)
        return texts

    with subprocess.Popen([sys.executable, "-c", SWAP], cwd=root) as swapping:
        wait_until((root / "swapping").exists, what="the first swap")
        try:
            texts = asyncio.run(use())
            assert swapping.poll() is None
        finally:
            swapping.kill()
    assert "     1\tmine" in texts
    assert not any("secret" in text for text in texts)
    assert [path.name for path in outside.iterdir()] == ["read"]
