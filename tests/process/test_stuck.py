"""A teammate that hangs is reported, and restarted if the settings say so."""

from __future__ import annotations

import os
import signal
from typing import Final

import pytest

from tests.e2e.harness import Project
from tests.process.test_stopping import COMMANDS
from tests.strict.faults import Stall
from tests.strict.replies import say, use
from tests.waiting import wait_until

REPORT: Final = "[supervision]\nstuck_seconds = 1.5\n"
RESTART: Final = REPORT + "stuck_restart = true\n"


def in_a_command(project: Project, settings: str, command: str = COMMANDS["sleeper"]) -> int:
    """Have ann run an endless command; return her pid."""
    project.write("team.toml", settings)
    project.start()
    busy = use(("bash", {"command": command.format(name="busy"), "timeout": 3600}))
    project.stage.play("ann", busy, say("I go on."))
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    wait_until((project.folder / "busy").exists, what="the command runs")
    return int(project.wait_for("ann", "working")["pid"])


def stuck(project: Project) -> bool:
    return bool(project.member("ann")["reason"] == "no progress for 1.5 s")


@pytest.mark.slow
def test_a_teammate_suspended_at_work_is_reported_once_per_suspension(project: Project) -> None:
    """The report does not wait for the hour of the command.

    After the stop, the teammate may continue as if nothing had happened.
    """
    pid = in_a_command(project, REPORT)
    for episode in (1, 2):
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: stuck(project), what="it is noticed")
        assert "ann: no progress for 1.5 s" in project.do("teamctl", "team")
        assert project.member("ann")["status"] == "working"
        assert project.mail("lead").count("ann is stuck: no progress for 1.5 s") == episode
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: project.member("ann")["reason"] is None, what="it is heard again")
    assert project.member("ann")["pid"] == pid
    assert len(project.log("teamd", "stuck")) == 2


@pytest.mark.slow
def test_a_stuck_teammate_is_killed_and_continues_if_settings_say_so(project: Project) -> None:
    pid = in_a_command(project, RESTART, COMMANDS["leaver"])
    os.kill(pid, signal.SIGSTOP)
    project.wait_for("ann", "idle", turns=2)
    assert project.member("ann")["pid"] != pid
    (told,) = project.log("teamd", "crashed")
    assert told["reason"] == "no progress for 1.5 s, and its process was ended by SIGKILL"
    assert "it is killed and started again" in project.mail("lead")
    (result,) = project.asked("ann", least=1)[-1].asked.last_results
    assert "Whether it had any effect is not known" in result.text
    wait_until(lambda: "sleep 1000" not in project.survivors().values(), what="her commands ended")


@pytest.mark.slow
def test_a_waiting_teammate_is_not_stuck(project: Project) -> None:
    """Not by a long command, a silent model, a retry, a pause, or mail to an idle teammate."""
    project.write("team.toml", REPORT)
    stall = Stall()
    project.server.faults.when(lambda asked: asked.name == "caller", stall)
    project.start()
    project.stage.play("sleeper", use(("bash", {"command": "sleep 4; touch slept"})))
    for name in ("idler", "caller", "sleeper"):
        project.do("teamctl", "spawn", name, "worker", "Go.")
    assert stall.reached.wait(20)
    wait_until((project.folder / "slept").exists, what="more than twice the time has passed")
    project.do("teamctl", "send", "idler", "Still there?")
    project.wait_for("idler", "idle", turns=2)
    assert project.log("teamd", "stuck") == []
    assert project.mail("lead") == ""
