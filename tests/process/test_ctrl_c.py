"""Ctrl-C during a finalizer, where Python prints and drops the exception."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.harness import Project

# A following command that is interrupted in a finalizer while it displays the first message.
INTERRUPTED = """
import io, signal, sys
from teamctl.main import main

class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Shown(io.TextIOWrapper):
    def write(self, text):
        if "first" in text:
            Dropped()
        return super().write(text)

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it is ignored, as behind `&`
sys.stdout = Shown(sys.stdout.buffer)
sys.argv = ["teamctl", "inbox", "ann", "--follow"]
main()
"""


def test_a_ctrl_c_during_a_finalizer_still_ends_the_command(project: Project) -> None:
    project.enlist("ann")
    project.do("teamctl", "send", "ann", "first", "--from", "lead")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (130, "\n")
    assert "first" in done.stdout
