"""`teamd start` after a `kill -9` of the supervisor: immediately, and with unfinished requests."""

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


def test_a_start_right_after_a_kill_succeeds(project: Project) -> None:
    """The kernel closes the inotify queue of a killed supervisor for 100 ms, with all locks held.

    One process kills and starts, because starting another process takes longer than that.
    """
    project.ask_no_service()
    killed = project.start()
    argv = ("-c", KILL_AND_START, str(killed), str(project.paths.root))
    done = project.run(sys.executable, *argv)
    assert (done.status, done.stderr) == (0, "")
    assert project.supervisor != killed


def test_a_request_that_a_killed_supervisor_had_taken_is_answered_but_not_repeated(
    project: Project,
) -> None:
    """The request may have been executed.

    An id with a path is refused, so that no answer is written outside the folder.
    """
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
