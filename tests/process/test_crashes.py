"""A crashed teammate restarts and continues; one that crashes too often is given up."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest

from teamd.files import locks
from teamd.process_id import Identity
from tests.e2e.harness import Project
from tests.strict.faults import Stall
from tests.strict.replies import say, use
from tests.waiting import wait_until


def kill(project: Project, name: str) -> None:
    """Kill a teammate's process and wait until it has a new one."""
    pid = project.member(name)["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: project.member(name)["pid"] not in (pid, None), what=f"{name} is back")


def is_right(project: Project, name: str, *, status: str, but: int) -> bool:
    """Return whether the roster shows a status and a live process other than `but`.

    The process must have started its log.
    """
    member = project.member(name)
    if member["pid"] in (but, None) or (member["status"], member["reason"]) != (status, None):
        return False
    return (
        Identity.of(member["pid"]) == Identity(pid=member["pid"], started=member["started"])
        and project.log(name, "begins")[-1]["pid"] == member["pid"]
    )


def test_a_killed_teammate_is_back_within_a_second_with_its_conversation(team: Project) -> None:
    """Elsewhere a crash leaves `working` in the roster for ever and loses the conversation."""
    team.stage.play("kim", say("Noted."), say("It was blue."))
    team.do("teamctl", "spawn", "kim", "clerk", "Remember: blue.", "--wait")
    pid = team.wait_for("kim", "idle")["pid"]
    begun = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_right(team, "kim", status="idle", but=pid), what="kim is back")
    took = time.monotonic() - begun
    print(f"idle again after {took:.2f} s")  # noqa: T201
    assert took < 1
    assert len(team.asked("kim")) == 1, "there was nothing to ask"
    team.do("teamctl", "send", "kim", "Which colour was it?")
    wait_until(lambda: len(team.asked("kim")) == 2, what="kim answers")
    assert "Remember: blue." in str(team.asked("kim", least=1)[-1].body["messages"][0])


def test_a_teammate_killed_during_a_model_call_is_back_within_a_second_and_asks_again(
    team: Project,
) -> None:
    """The new request has the whole conversation; the roster shows the new process as working."""
    replies = Stall(after=4), Stall(after=4)
    team.server.faults.when(lambda asked: asked.name == "lou" and len(asked.turns) > 1, *replies)
    team.stage.play("lou", use(("bash", {"command": "echo blue"})), say("It is blue."))
    team.do("teamctl", "spawn", "lou", "clerk", "Which colour is it?")
    wait_until(replies[0].reached.is_set, what="a reply has begun")
    pid = team.member("lou")["pid"]
    begun = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_right(team, "lou", status="working", but=pid), what="lou is back")
    took = time.monotonic() - begun
    print(f"working again after {took:.2f} s")  # noqa: T201
    assert took < 1
    wait_until(replies[1].reached.is_set, what="lou has asked again")
    assert team.asked("lou", least=1)[-1].body == team.asked("lou", least=2)[-2].body
    replies[1].released.set()  # the reply is cut off and requested once more
    team.wait_for("lou", "idle", turns=2)


@pytest.mark.slow
def test_a_teammate_killed_during_a_tool_call_continues_and_leaves_no_command_running(
    team: Project,
) -> None:
    command = "setsid sleep 1000 & touch killed; sleep 1000"
    team.stage.play("ines", use(("bash", {"command": command})), say("I looked, and went on."))
    team.do("teamctl", "spawn", "ines", "clerk", "Go.")
    wait_until((team.folder / "killed").exists, what="the command runs")
    kill(team, "ines")
    wait_until(lambda: len(team.asked("ines")) == 2, what="ines goes on by herself")
    (result,) = team.asked("ines", least=1)[-1].asked.last_results
    assert result.is_error
    assert "Whether it had any effect is not known" in result.text
    wait_until(
        lambda: not [line for line in team.survivors().values() if "sleep 1000" in line],
        what="her commands have ended",
    )


@pytest.mark.slow
def test_too_many_crashes_end_in_failed_and_the_lead_is_informed(project: Project) -> None:
    """The default limit is five crashes in a minute; the sixth exceeds it."""
    project.start()
    project.do("teamctl", "spawn", "jo", "clerk", "Go.", "--wait")
    for _ in range(5):
        kill(project, "jo")
    os.kill(project.member("jo")["pid"], signal.SIGKILL)
    failed = project.wait_for("jo", "failed")
    assert failed["pid"] is None
    assert failed["reason"] == "its process was ended by SIGKILL"
    wait_until(lambda: "jo has failed" in project.mail("lead"), what="the lead is told")
    assert str(project.paths.log("jo")) in project.mail("lead")
    sent = project.run("teamctl", "send", "jo", "Are you there?")
    assert sent.status == 0
    assert "jo has failed" in sent.complaint
    project.do("teamctl", "spawn", "jo", "clerk", "Go on.", "--wait")
    assert "Are you there?" in str(project.asked("jo", least=1)[-1].body["messages"])


def test_the_restart_limit_is_a_setting(project: Project) -> None:
    project.write("team.toml", "[supervision]\ncrashes = 1\nwithin_seconds = 600\n")
    project.start()
    project.do("teamctl", "spawn", "jo", "clerk", "Go.", "--wait")
    kill(project, "jo")
    os.kill(project.member("jo")["pid"], signal.SIGKILL)
    project.wait_for("jo", "failed")


@pytest.mark.slow
def test_a_teammate_that_waits_for_its_restart_can_be_shut_down(project: Project) -> None:
    """The pending restart must not bring it back."""
    project.start()
    project.do("teamctl", "spawn", "jo", "clerk", "Go.", "--wait")
    for _ in range(4):
        kill(project, "jo")
    os.kill(project.member("jo")["pid"], signal.SIGKILL)  # the next start comes after 1.6 s
    wait_until(lambda: project.member("jo")["pid"] is None, what="jo waits")
    assert re.search("SIGKILL; starting again", project.member("jo")["reason"])
    assert project.do("teamctl", "shutdown", "jo") == "jo is shut down\n"
    assert project.member("jo")["status"] == "shutdown"
    assert "teamd has stopped" in project.do("teamd", "stop")
    assert len(project.log("teamd", "forked")) == 5


@pytest.mark.slow
def test_a_teammate_never_runs_in_two_processes(project: Project) -> None:
    """Both would take its mail and write its conversation."""
    project.start()
    project.do("teamctl", "spawn", "jo", "clerk", "Go.", "--wait")
    project.do("teamd", "stop")
    other = locks.hold(project.paths.lives / "jo.lock")
    project.start()
    project.do("teamctl", "send", "jo", "Who are you?")
    wait_until(lambda: project.log("teamd", "forked"), what="jo is forked")
    assert len(project.asked("jo")) == 1
    os.close(other)
    wait_until(lambda: len(project.asked("jo")) == 2, what="jo goes on once the other has ended")


@pytest.mark.slow
def test_an_odd_directory_of_another_team_does_not_break_the_cleanup(project: Project) -> None:
    """The cleanup after a teammate checks which processes are supervisors of other teams."""
    (project.folder / ".teams" / "web" / "teamd.pid").mkdir(parents=True)
    project.stage.play("jo", use(("bash", {"command": "sleep 1000 & sleep 1001"})), say("Done."))
    supervisor = project.start()
    project.do("teamctl", "spawn", "jo", "clerk", "Go.")
    wait_until(lambda: "sleep 1001" in project.survivors().values(), what="the command runs")
    killed = project.member("jo")["pid"]
    os.kill(killed, signal.SIGKILL)
    project.wait_for("jo", "idle")
    assert project.member("jo")["pid"] != killed
    assert project.supervisor == supervisor
    wait_until(
        lambda: not {"sleep 1000", "sleep 1001"} & set(project.survivors().values()),
        what="nothing is left of the command",
    )
