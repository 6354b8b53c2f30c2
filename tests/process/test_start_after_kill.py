"""`teamd start` after a `kill -9` of the supervisor: right after it, and with what it had begun."""

from __future__ import annotations

import sys

from teamd.control import ControlRequest
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD
from tests.e2e.harness import Project
from tests.waiting import wait_until

KILL_AND_START = """
import os, sys
from teamd.__main__ import program
from teamd.process_id import Identity
killed = Identity.of(int(sys.argv[1]))
os.kill(killed.pid, 9)
while killed.alive and not killed.ending:
    pass
program(["start", "--team-dir", sys.argv[2]], prog_name="teamd", standalone_mode=False)
os._exit(0)  # without a warning that the new teamd still runs
"""


def test_a_start_just_after_a_kill_is_not_refused(project: Project) -> None:
    """Closing its inotify queue keeps a killed supervisor there for 100 ms, locks and all.

    One process kills and starts: to begin another one takes longer than that.
    """
    project.ask_no_service()
    killed = project.start()
    argv = ("-c", KILL_AND_START, str(killed), str(project.paths.root))
    done = project.run(sys.executable, *argv)
    assert (done.status, done.stderr) == (0, "")
    assert project.supervisor != killed


def test_what_a_killed_supervisor_had_in_hand_is_answered_and_not_done_again(
    project: Project,
) -> None:
    """It may have been done. An id that is a path is nobody's: no answer leaves its folder."""
    project.enlist("ann")
    control = Mailbox(project.paths, TEAMD)
    asked = [
        ControlRequest.within(60, "spawn", id=name, arguments={}) for name in ("one", "../two")
    ]
    control.put(*(request.encode() for request in asked))
    control.take()
    project.start()
    answer = project.paths.replies / "one.json"
    wait_until(answer.exists, what="the answer")
    assert "restarted meanwhile" in answer.read_text()
    assert not list(project.folder.rglob("*two*"))
    assert "a request needs an id that can be a file's name" in str(
        project.log("teamd", "no request")
    )
