"""`teamctl interrupt` and `pause`, on a running team, by the person and by the lead agent."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

from teamd import control
from teamd.control import ControlRequest
from teamd.files.watch import wait_for
from tests.e2e.harness import Project
from tests.strict.asked import Asked
from tests.strict.faults import Fault, Stall, Status
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

INSTEAD = "Do something else."


def runs(project: Project, name: str) -> None:
    """Spawn a teammate whose command runs for long."""
    command = f"echo > {name}.begun; sleep 1000"

    def act(asked: Asked) -> Answer:
        if any(word in asked.last_text for word in (INSTEAD, "Again.")):
            return say("I do.")
        return use(("bash", {"command": command}))

    project.stage.act(name, act)
    project.do("teamctl", "spawn", name, "coder", "Work.")
    wait_until((project.folder / f"{name}.begun").exists, what="the command runs")


def test_ctrl_c_in_a_waiting_spawn_says_that_the_teammate_works_on(project: Project) -> None:
    project.stage.play("wes", use(("bash", {"command": "echo > wes.begun; sleep 1000"})))
    argv = ("teamctl", "spawn", "wes", "coder", "Work.", "--wait")
    spawn = project.begin(*argv, stderr=subprocess.PIPE, installed=True)
    wait_until((project.folder / "wes.begun").exists, what="the command runs")
    spawn.send_signal(signal.SIGINT)
    assert spawn.wait(30) == 130
    assert spawn.stderr is not None
    assert "wes works on; `teamctl wait wes` waits for it again" in spawn.stderr.read()
    assert project.member("wes")["status"] == "working"


def told(project: Project, name: str, text: str) -> int:
    """Return how often a text is in the conversation as mail."""
    mails = [one for record in project.records(name, "mail") for one in record["messages"]]
    return sum(one["content"] == text for one in mails)


def test_an_interrupted_command_ends_within_a_second_and_the_text_is_read_next(
    team: Project,
) -> None:
    runs(team, "anna")
    begun = time.monotonic()
    assert team.do("teamctl", "interrupt", "anna", INSTEAD) == (
        "anna is interrupted, and reads your text next\n"
    )
    wait_until(lambda: len(team.asked("anna")) == 2, what="the next call of the model")
    seconds = time.monotonic() - begun
    team.wait_for("anna", "idle", turns=2)
    (result,) = team.asked("anna")[-1].asked.last_results
    assert "interrupted by lead" in result.text
    assert result.is_error
    assert told(team, "anna", INSTEAD) == 1
    assert not [line for line in team.survivors().values() if "sleep 1000" in line]
    print(f"interrupted and asked again after {seconds:.2f} s, with the start of teamctl")  # noqa: T201
    assert seconds < 3  # includes the start of the command on a busy machine


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Stall(), Status(529, retry_after=3)], ids=["stream", "retry"])
def test_an_interrupt_ends_a_streaming_reply_or_the_wait_for_a_retry(
    team: Project, fault: Fault
) -> None:
    name = f"ben-{type(fault).__name__}"
    team.server.faults.when(lambda asked: asked.name == name, fault)
    team.do("teamctl", "spawn", name, "coder", "Work.")
    team.wait_for(name, "working")
    wait_until(lambda: team.server.faults.left == 0, what="the server fails")
    team.do("teamctl", "interrupt", name)
    team.wait_for(name, "idle")
    ended = team.records(name, "ended")
    assert [one["outcome"] for one in ended] == ["interrupted"]
    team.do("teamctl", "send", name, "Again.")
    team.wait_for(name, "idle", turns=1)


def test_a_teammate_that_is_shut_down_is_neither_interrupted_nor_paused(team: Project) -> None:
    team.do("teamctl", "spawn", "emil", "coder", "Work.", "--wait")
    team.do("teamctl", "shutdown", "emil")
    for verb in ("interrupt", "pause"):
        refused = team.run("teamctl", verb, "emil")
        assert refused.status == 1
        assert refused.complaint == (
            f"teamctl: emil is shutdown; there is nothing to {verb}; "
            "`teamctl spawn emil …` starts it again"
        )


def test_a_command_takes_several_names_and_one_failure_does_not_stop_the_others(
    team: Project,
) -> None:
    for name in ("nina", "nora"):
        team.do("teamctl", "spawn", name, "coder", "Work.", "--wait")
    paused = team.run("teamctl", "pause", "nina", "nobody", "nora")
    assert paused.status == 1
    assert paused.complaint.startswith("teamctl: no teammate named 'nobody'; ")
    assert [line.split()[0] for line in paused.stdout.splitlines()] == ["nina", "nora"]
    rows = json.loads(team.do("teamctl", "resume", "nina", "nora", "--json"))["members"]
    assert [row["name"] for row in rows] == ["nina", "nora"]
    assert "interrupted" not in team.do("teamctl", "interrupt", "nina", "nora", INSTEAD)
    for name in ("nina", "nora"):
        team.wait_for(name, "idle", turns=2)
        assert told(team, name, INSTEAD) == 1
    ended = json.loads(team.do("teamctl", "shutdown", "nina", "nora", "--json"))
    assert [row["exit_code"] for row in ended["members"]] == [0, 0]
    team.do("teamctl", "rm", "nina", "nora")
    assert team.member("nora") == {}


@pytest.mark.slow
def test_a_pause_outlasts_a_restart_and_mail_waits(project: Project) -> None:
    project.start()
    project.do("teamctl", "spawn", "gina", "coder", "Work.", "--wait")
    project.wait_for("gina", "idle")
    said = project.do("teamctl", "pause", "gina")
    assert said == "gina is paused until `teamctl resume gina`; mail waits\n"
    reason = "paused by the person; `teamctl resume gina` resumes it"
    assert project.wait_for("gina", "paused")["reason"] == reason
    project.do("teamctl", "send", "gina", "Work on.")
    project.restart()
    project.wait_for_process("gina")
    wait_until(lambda: project.member("gina")["reason"] == reason, what="it says why")
    refused = project.run("teamctl", "spawn", "gina", "coder", "More.")
    assert (refused.status, refused.complaint) == (1, f"teamctl: gina is {reason}")
    assert len(project.asked("gina")) == 1
    assert project.do("teamctl", "resume", "gina") == "gina goes on\n"
    project.wait_for("gina", "idle", turns=2)
    assert told(project, "gina", "Work on.") == 1
    assert project.member("gina")["paused_by"] is None
    assert project.run("teamctl", "resume", "gina").status == 1


@pytest.mark.slow
def test_a_pause_lets_the_running_step_finish_and_an_interrupt_ends_it(team: Project) -> None:
    runs(team, "hugo")
    said = team.do("teamctl", "pause", "hugo")
    assert said == (
        "hugo pauses once its step has ended, until `teamctl resume hugo`; mail waits\n"
    )
    assert team.member("hugo")["status"] == "working"
    team.do("teamctl", "interrupt", "hugo", INSTEAD)
    team.wait_for("hugo", "paused")
    assert len(team.asked("hugo")) == 1
    team.do("teamctl", "resume", "hugo")
    team.wait_for("hugo", "idle", turns=2)
    assert told(team, "hugo", INSTEAD) == 1


def test_a_lead_agent_has_interrupt_and_pause_as_tools(project: Project) -> None:
    project.start()
    runs(project, "jan")
    project.do("teamctl", "spawn", "kim", "coder", "Work.", "--wait")
    project.do("teamctl", "pause", "kim")
    calls = [
        ("interrupt_teammate", {"teammate": "jan", "text": INSTEAD}),
        ("pause_teammate", {"teammate": "lead"}),
        ("resume_teammate", {"teammate": "kim"}),
        ("pause_teammate", {"teammate": "jan"}),
        ("resume_teammate", {"teammate": "jan"}),
    ]
    project.stage.play("lead", *[use(call) for call in calls], say("Done."))
    project.do("teamctl", "chat", "Go.")
    answers = [one.asked.last_results[0].text for one in project.asked("lead")[1:]]
    assert answers[0] == "jan is interrupted, and reads your text next"
    assert answers[1] == "you cannot pause yourself; end your turn instead"
    assert answers[2].startswith("kim was not paused by you, and you cannot resume it")
    assert answers[3].startswith("jan ")
    assert answers[4] == "jan goes on"
    project.wait_for("jan", "idle", turns=2)
    assert project.member("kim")["paused_by"] == "user"


def test_the_lead_of_another_team_reaches_only_its_own_teammates(team: Project) -> None:
    team.do("teamctl", "spawn", "lars", "coder", "Work.", "--wait")
    for verb in ("interrupt", "pause", "resume"):
        order = ControlRequest.within(10.0, verb, arguments={"name": "lars"}, sender="lead@web")
        control.submit(team.paths, order)
        reply = wait_for(
            team.paths.replies,
            lambda order=order: control.collect(team.paths, order.id),  # type: ignore[misc]
            timeout_seconds=20,
        )
        assert reply is not None
        assert reply.exit_code == 1
        assert "has another leader" in reply.text or "was not paused by you" in reply.text
