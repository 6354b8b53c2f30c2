"""`teamd start` right after a `kill -9` of the supervisor, while the kernel takes it apart."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.harness import Project

KILL_AND_START = """
import os, sys
from teamd.__main__ import cli
from teamd.identity import Identity
killed = Identity.of(int(sys.argv[1]))
os.kill(killed.pid, 9)
while killed.alive and not killed.ending:
    pass
cli(["start", "--team-dir", sys.argv[2]], prog_name="teamd", standalone_mode=False)
os._exit(0)  # without a warning that the new teamd still runs
"""


def test_a_start_just_after_a_kill_is_not_refused(project: Project) -> None:
    """Closing its inotify queue keeps a killed supervisor there for 100 ms, locks and all.

    One process kills and starts: to begin another one takes longer than that.
    """
    killed = project.start()
    argv = ("-c", KILL_AND_START, str(killed), str(project.paths.root))
    done = project.run(sys.executable, *argv)
    assert (done.status, done.stderr) == (0, "")
    assert project.supervisor != killed
