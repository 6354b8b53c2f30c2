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
def test_running_work_is_shown_and_no_longer_shown_after_a_kill(project: Project) -> None:
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
    assert 800 < ann["until_unix"] - ann["since_unix"] <= 901
    table = project.do("teamctl", "team")
    assert re.search(rf"ann +coder +paused +\S+ +until {time_of_day(ann['until_unix'])}", table)
    assert "`teamctl resume ann` resumes it" in table
    assert "ann is paused: " in project.do("teamd", "status")


@pytest.mark.slow
def test_a_permission_request_is_shown_at_the_top_with_the_command_that_answers_it(
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
