"""`teamctl team` shows a team's work and problems without a look into a log."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from typing import Any

import pytest

from teamd.clocks import time_of_day
from tests.e2e.harness import Project
from tests.e2e.terminal import Terminal
from tests.strict.faults import Status
from tests.strict.replies import say, use
from tests.waiting import wait_until

PUSH = "git push origin main"
ASKING = """
[[permission]]
tool = "bash"
command = "git push"
then = "ask"
"""


def overview(project: Project) -> Any:
    return json.loads(project.do("teamctl", "team", "--json"))


def see(project: Project, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = overview(project)["members"]
    return next(member for member in found if member["name"] == name)


def wait_for_tool(project: Project, name: str, what: str) -> dict[str, Any]:
    wait_until(lambda: (see(project, name)["doing"] or {}).get("what") == what, what=what)
    return see(project, name)


def at_a_question(project: Project) -> str:
    """Have ann ask for a permission; return the id of her request."""
    project.write("team.toml", ASKING)
    project.stage.play("ann", use(("bash", {"command": PUSH})), say("Done."))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    project.wait_for("ann", "paused")
    return str(see(project, "ann")["waiting_request"])


@pytest.mark.slow
def test_running_work_is_shown_and_a_killed_teammate_does_nothing(project: Project) -> None:
    project.stage.play("ann", use(("bash", {"command": "sleep 1000"})), say("Done."))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    ann = wait_for_tool(project, "ann", "bash sleep 1000")
    assert (ann["doing"]["kind"], ann["state"], ann["restarts"]) == ("tool", "working", 0)
    assert ann["uptime_seconds"] > 0
    assert 0 < ann["context"] < 1
    assert "bash sleep 1000" in project.do("teamctl", "team")
    os.kill(ann["pid"], signal.SIGKILL)
    wait_until(lambda: see(project, "ann")["restarts"] == 1, what="she is started again")
    # She continues with the next model call, so the earlier tool call is no longer shown.
    project.wait_for("ann", "idle", turns=2)
    assert see(project, "ann")["doing"] is None
    heading, row, *_ = project.do("teamctl", "team").splitlines()
    assert dict(zip(heading.split(), row.split(), strict=True))["RESTARTS"] == "1"


def test_no_work_is_shown_once_all_processes_are_killed(project: Project) -> None:
    """After a kill, files and roster still say that the teammate works."""
    project.stage.play("ann", use(("bash", {"command": "sleep 1000"})))
    supervisor = project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    ann = wait_for_tool(project, "ann", "bash sleep 1000")
    os.kill(supervisor, signal.SIGKILL)
    os.kill(ann["pid"], signal.SIGKILL)
    wait_until(lambda: see(project, "ann")["pid"] is None, what="she is dead")
    wait_until(lambda: overview(project)["teamd"] is None, what="so is teamd")
    seen = overview(project)
    assert seen["members"][0]["status"] == "working"
    assert (seen["members"][0]["doing"], seen["teamd"]) == (None, None)
    assert [notice["command"] for notice in seen["notices"]] == ["teamd start"]


@pytest.mark.slow
def test_a_failing_server_is_reported_with_attempt_cause_and_time(project: Project) -> None:
    """Otherwise only the log would show it, for up to two minutes."""
    project.server.faults.push(Status(500, retry_after=57))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    wait_until(lambda: see(project, "ann")["retry"], what="a retry is shown")
    retry = see(project, "ann")["retry"]
    assert (retry["attempt"], retry["attempts"]) == (2, 10)
    assert re.search(r"retrying 2/10: .* answered 500.*, next in 5\d s", retry["text"])
    assert re.search(r"retrying 2/10: .* answered 500", project.do("teamctl", "team"))
    assert see(project, "ann")["doing"]["kind"] == "model"


def test_an_unreachable_server_is_reported_and_a_pause_shows_its_end(
    project: Project,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    project.environment["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{port}"
    project.write("team.toml", "[model]\nattempts = 2\nretry_seconds = 0.01\nrest_seconds = 900\n")
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    project.wait_for("ann", "paused")
    ann = see(project, "ann")
    assert 800 < ann["until"] - ann["since"] <= 901
    table = project.do("teamctl", "team")
    assert re.search(rf"ann +coder +paused +\S+ +until {time_of_day(ann['until'])}", table)
    assert "`teamctl resume ann` lets it go on" in table
    assert "ann is paused: " in project.do("teamd", "status")


@pytest.mark.slow
def test_a_successful_retry_is_no_longer_shown(project: Project) -> None:
    project.server.faults.push(Status(500))
    project.stage.play("ann", use(("bash", {"command": "sleep 1000"})))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.")
    assert wait_for_tool(project, "ann", "bash sleep 1000")["retry"] is None


@pytest.mark.slow
def test_a_permission_request_is_on_top_with_the_command_that_answers_it(
    project: Project,
) -> None:
    request = at_a_question(project)
    first, second, *_ = project.do("teamctl", "team").splitlines()
    assert first == f"ann asks to run: bash {PUSH}"
    assert second == f"  `teamctl approve {request}` or `teamctl reject {request}`"
    ann = see(project, "ann")
    assert (ann["status"], ann["state"]) == ("paused", "waiting")
    assert ann["until"] > ann["since"]
    status = project.do("teamd", "status").splitlines()
    assert status[0].endswith("; 1 waiting")
    assert status[1:3] == [first, second]
    assert f"`teamctl approve {request}` allows it once" in project.do("teamctl", "requests")
    _, command, _ = second.split("`", 2)
    project.do(*command.split())
    project.wait_for("ann", "idle", turns=2)
    assert see(project, "ann")["state"] == "idle"
    assert first not in project.do("teamctl", "team")


@pytest.mark.slow
def test_requests_name_the_command_that_answers_a_plan(project: Project) -> None:
    project.stage.play("ann", use(("submit_plan", {"plan": "Mend it."})), say("I wait."))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--plan", "--wait")
    project.wait_for("ann", "idle")  # she has replied, but is still working for a moment
    request = see(project, "ann")["waiting_request"]
    assert f"  `teamctl approve {request}` approves it" in project.do("teamctl", "requests")
    assert see(project, "ann")["state"] == "waiting"


@pytest.mark.slow
def test_a_watch_follows_the_team_and_ends_at_ctrl_c(project: Project) -> None:
    project.environment["TERM"] = "xterm-256color"
    request = at_a_question(project)
    watching = Terminal(project, "teamctl", "team", "--watch")
    watching.sees(f"`teamctl approve {request}`")
    watching.sees("1 waiting; ")
    project.do("teamctl", "approve", request)
    watching.sees("1 idle; ")
    watching.type(b"\x03")
    assert watching.process.wait(20) == 130
    watching.close()


@pytest.mark.slow
def test_a_plain_terminal_gets_lines(project: Project) -> None:
    project.environment["TERM"] = "dumb"
    request = at_a_question(project)
    watching = Terminal(project, "teamctl", "team", "--watch")
    watching.sees(f"`teamctl approve {request}`")
    project.do("teamctl", "reject", request)
    watching.sees("ann idle")
    assert b"\x1b[2J" not in watching.raw
    watching.type(b"\x03")
    assert watching.process.wait(20) == 130
    watching.close()


def test_looking_takes_no_mail(project: Project) -> None:
    project.enlist("ann")
    project.do("teamctl", "send", "ann", "Hello.")
    project.do("teamctl", "send", "lead", "Hello.", "--from", "ann")
    before = project.mail("ann"), project.mail("lead")
    project.do("teamctl", "team")
    overview(project)
    project.run("teamd", "status")
    assert (project.mail("ann"), project.mail("lead")) == before
    assert overview(project)["unread"] == 1
