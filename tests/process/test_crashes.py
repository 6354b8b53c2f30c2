"""A crashed teammate restarts and continues; one that crashes too often is given up."""

from __future__ import annotations

import os
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
def test_after_too_many_crashes_a_teammate_has_failed_and_the_lead_is_informed(
    project: Project,
) -> None:
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
