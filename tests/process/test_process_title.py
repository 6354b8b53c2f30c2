"""Processes of teamd are recognized in ps, top and pgrep by their titles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

_TITLED = """
import sys
from teamd.process_title import set_title
set_title(sys.argv[1])
print("titled", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("title", ["teamd: alice", "teamd: " + "a" * 64, "teamd: " + "é" * 2000])
def test_a_title_replaces_name_and_command_line_and_nothing_else(title: str) -> None:
    argv = [sys.executable, "-c", _TITLED, title]
    given = {"FIRST": "1" * 50, "LAST": "2"}
    with subprocess.Popen(argv, stdin=-1, stdout=-1, env=given) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"titled\n"
        proc = Path(f"/proc/{process.pid}")
        words = (proc / "cmdline").read_bytes()
        assert words.rstrip(b"\0") == title.encode()
        assert (proc / "comm").read_bytes() == title.encode()[:15] + b"\n"
        assert (proc / "environ").read_bytes() == b"FIRST=" + b"1" * 50 + b"\0LAST=2\0"
        process.communicate()
