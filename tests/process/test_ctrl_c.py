"""A Ctrl-C at a moment when Python raises nothing: in a finalizer it is printed and forgotten."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.harness import Project

# One that follows, and is interrupted in the finalizer of what the first shown mail leaves behind.
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


def test_one_that_falls_into_a_finalizer_ends_the_command_all_the_same(project: Project) -> None:
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
