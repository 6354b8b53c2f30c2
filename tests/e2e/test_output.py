"""The interface to programs and shells: stable JSON keys, closed pipes, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from tests.e2e.harness import Project
from tests.strict.replies import say

MEMBER_KEYS = {"name", "agent_id", "role", "status", "pid", "model", "color"}
MESSAGE_KEYS = {"id", "type", "from", "to", "content", "timestamp"}


def _json(team: Project, *argv: str) -> Any:
    return json.loads(team.do(*argv, "--json"))


def test_json_is_one_document_with_the_promised_keys(team: Project) -> None:
    team.stage.play("ann", say("Hello."))
    spawned = _json(team, "teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    assert spawned["text"] == "Hello."
    assert spawned["member"]["agent_id"] == "ann@project"
    team.wait_for("ann", "idle")

    roster = _json(team, "teamctl", "team")
    assert roster["team_name"] == "project"
    ann = next(member for member in roster["members"] if member["name"] == "ann")
    assert ann.keys() > MEMBER_KEYS | {"uptime_seconds", "cpu_seconds", "memory_bytes", "queued"}
    assert (ann["status"], ann["turns"], ann["queued"]) == ("idle", 1, 0)
    assert json.loads(team.paths.config.read_bytes())["members"][0].keys() >= MEMBER_KEYS

    team.do("teamctl", "send", "lead", "Ünï", "--from", "ann", "--summary", "short")
    (message,) = _json(team, "teamctl", "inbox")["messages"]
    assert message.keys() >= MESSAGE_KEYS
    assert (message["from"], message["content"], message["summary"]) == ("ann", "Ünï", "short")
    assert _json(team, "teamctl", "inbox") == {"messages": []}

    transcript = _json(team, "teamctl", "transcript", "ann")
    assert transcript["name"] == "ann"
    assert [r["record"] for r in transcript["records"]] == ["opened", "mail", "reply", "ended"]
    status = _json(team, "teamd", "status")
    running = {"running": True, "pid": team.supervisor, "team": str(team.paths.root)}
    assert status == {
        **running,
        "sandbox": "bubblewrap, no network",
        "untrusted": [],
        "notices": [],
    }
    for line in team.do("teamctl", "logs", "teamd", "--json").splitlines():
        assert json.loads(line).keys() >= {"time", "level", "event", "who"}


def test_a_closed_pipe_is_not_an_error(team: Project) -> None:
    """`| head` closes the pipe before most of the transcript is written."""
    team.do("teamctl", "spawn", "long", "coder", "-", "--wait", stdin="a line of many\n" * 30_000)
    piped = "teamctl transcript long --full | head -1; echo ${PIPESTATUS[*]}"
    ended = team.run("bash", "-c", piped)
    assert ended.stderr == ""
    assert ended.stdout.splitlines()[-1] == "0 0"


def test_ctrl_c_silently_ends_a_command_that_runs_with_follow(team: Project) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with team.begin("teamctl", "logs", "teamd", "--follow", **pipes) as following:
        assert following.stdout is not None
        assert "ready" in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=20)
    assert following.returncode == 130
    assert errors.strip() == ""


@pytest.mark.parametrize("command", ["team", "usage"])
def test_a_table_cut_off_by_its_reader_is_not_a_failure(project: Project, command: str) -> None:
    project.enlist("ann")
    waits = f"{{ sleep 0.2; teamctl {command}; echo $? > status; }} | true; cat status"
    assert project.do("bash", "-c", waits) == "0\n"
