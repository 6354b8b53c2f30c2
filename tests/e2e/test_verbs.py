"""`teamctl rm`, `show`, `wait`, `ps` and `teams --all`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import psutil
import pytest

from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until


def test_only_teammates_that_are_shut_down_are_removed(team: Project) -> None:
    team.do("teamctl", "spawn", "ada", "coder", "Work.", "--wait")
    team.wait_for("ada", "idle")
    refused = team.run("teamctl", "rm", "ada")
    assert (refused.status, refused.complaint) == (
        1,
        "teamctl: ada is idle and still in the team; `teamctl shutdown ada` ends it first",
    )
    team.do("teamctl", "shutdown", "ada")
    assert team.do("teamctl", "rm", "Ada") == "ada is no longer in the team; its files stay\n"
    assert team.member("ada") == {}
    again = team.run("teamctl", "rm", "ada")
    assert (again.status, again.complaint.split(";")[0]) == (1, "teamctl: no teammate named 'ada'")
    team.do("teamctl", "spawn", "ada", "coder", "More.", "--wait")
    assert "Work." in str(team.asked("ada")[-1].body["messages"]), "its files stayed"


def test_purge_deletes_all_files_of_a_teammate_and_no_others(team: Project) -> None:
    for name in ("ben", "ben-2"):
        team.do("teamctl", "spawn", name, "coder", "Work.", "--wait")
        team.do("teamctl", "shutdown", name)
        team.do("teamctl", "send", name, "More.")
    said = team.do("teamctl", "rm", "ben", "--purge")
    assert said.startswith("ben is no longer in the team; ")
    assert said.endswith(" of its files and folders are deleted\n")
    left = [path for path in team.paths.root.rglob("ben*") if path.stem.split(".")[0] == "ben"]
    assert [path for path in left if path.parent != team.paths.life("ben").parent] == []
    assert "More." in team.mail("ben-2")
    assert team.records("ben-2")
    assert "ben has left the team before" in team.do("teamctl", "rm", "ben", "--purge")


@pytest.mark.slow
def test_show_describes_one_teammate_completely(team: Project) -> None:
    team.stage.play("cleo", use(("submit_plan", {"plan": "This."})), say("I wait for you."))
    team.do("teamctl", "spawn", "cleo", "coder", "Work.", "--plan", "--wait")
    team.wait_for("cleo", "idle")
    team.do("teamctl", "task", "add", "Count")
    shown = team.do("teamctl", "show", "cleo")
    (request,) = json.loads(team.do("teamctl", "requests", "--json"))["requests"]
    words = r"name       cleo \(coder\)\nstate      waiting for \d+s: This\.\nprocess    pid "
    assert re.match(words, shown), shown
    waits = team.run("teamctl", "wait", "cleo")
    assert waits.status == 1
    assert waits.stdout == (
        "cleo is waiting: cleo asks to approve a plan: This.; "
        f"`teamctl approve {request['id']}` or `teamctl reject {request['id']}`\n"
    )
    assert "used       2 turns, " in shown
    assert f"`teamctl approve {request['id']}` answers it" in shown
    assert "said       I wait for you.\n" in shown
    member = json.loads(team.do("teamctl", "show", "cleo", "--json"))["member"]
    assert (member["name"], member["said"], member["alive"]) == ("cleo", "I wait for you.", True)
    assert [one["id"] for one in member["requests"]] == [request["id"]]
    assert team.run("teamctl", "show", "nobody").status == 1
    team.do("teamctl", "reject", "cleo", "--reason", "No.")


def test_wait_and_rm_without_teamd_say_so(project: Project) -> None:
    """Nobody would ever end the work that `wait` waits for."""
    for verb, status in (("wait", "working"), ("rm", "shutdown")):
        project.enlist("alice", status=status)
        refused = project.run("teamctl", verb, "alice")
        assert (refused.status, refused.stdout) == (3, "")
        assert refused.complaint.endswith("; start it with `teamd start`")


@pytest.mark.slow
def test_wait_returns_once_all_teammates_are_idle(team: Project) -> None:
    command = "until [ -e go ]; do sleep 0.05; done"
    team.stage.play("dora", use(("bash", {"command": command})), say("Done."))
    team.do("teamctl", "spawn", "dora", "coder", "Work.")
    team.do("teamctl", "spawn", "emil", "coder", "Work.")
    team.wait_for("dora", "working")
    wait_until(lambda: f"s: bash {command}\n" in team.do("teamctl", "show", "dora"), what="it says")
    late = team.run("teamctl", "wait", "dora", "emil", "--timeout", "0.7")
    assert late.status == 4
    assert late.complaint == ("teamctl: dora is still at work after 0.7 s; `teamctl team` shows it")
    waiting = team.begin("teamctl", "wait", "dora", "Emil", stdout=subprocess.PIPE)
    team.write("go", "")
    assert waiting.communicate(timeout=30)[0] == "dora is idle\nemil is idle\n"
    assert waiting.returncode == 0
    team.do("teamctl", "send", "emil", "More.")
    team.do("teamctl", "wait", "emil")
    assert len(team.asked("emil")) == 2
    team.do("teamctl", "pause", "emil")
    team.wait_for("emil", "paused")
    paused = team.run("teamctl", "wait", "emil")
    assert (paused.status, paused.stdout) == (
        1,
        "emil is paused: paused by the person; `teamctl resume emil` resumes it\n",
    )
    assert team.run("teamctl", "wait").status == 2
    assert team.run("teamctl", "wait", "nobody").status == 1


def resident(process: dict[str, Any]) -> int:
    """The memory of a process including all shared pages, which several processes count."""
    return int(psutil.Process(process["pid"]).memory_info().rss)


def test_ps_lists_teamd_the_teammates_and_their_commands(team: Project) -> None:
    team.stage.play("finn", use(("bash", {"command": "echo > finn; sleep 987"})))
    team.do("teamctl", "spawn", "finn", "coder", "Work.")
    wait_until((team.folder / "finn").exists, what="the command runs")

    def processes() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(team.do("teamctl", "ps", "--json"))["processes"]
        return listed

    found = processes()
    assert (found[0]["pid"], found[0]["name"], found[0]["command"]) == (
        team.supervisor,
        "teamd",
        "",
    )
    (own,) = [one for one in found if one["pid"] == team.member("finn")["pid"]]
    assert (own["name"], own["parent"]) == ("finn", team.supervisor)
    commands = [one["command"] for one in found if one["name"] == "finn"]
    assert "sleep 987" in commands
    members = json.loads(team.do("teamctl", "team", "--json"))["members"]
    assert own["memory_bytes"] in [one["memory_bytes"] for one in members if one["name"] == "finn"]
    if os.geteuid() == 0:  # other users only see that pages are shared, not by how many
        assert sum(one["memory_bytes"] for one in found) < sum(map(resident, found)) / 2
    shown = team.do("teamctl", "ps")
    assert "sleep 987" in shown
    assert max(map(len, shown.splitlines())) < 240 < max(map(len, commands))
    team.do("teamctl", "interrupt", "finn")


def test_teams_of_all_projects_are_listed_from_anywhere(project: Project) -> None:
    project.ask_no_service()
    project.start()
    project.do("teamctl", "send", "lead", "Hello.", "--from", "build")
    elsewhere = project.root / "elsewhere"
    elsewhere.mkdir()
    found = json.loads(project.run("teamctl", "teams", "--all", "--json", cwd=elsewhere).stdout)[
        "teams"
    ]
    (team,) = found
    facts = {"path": str(project.paths.root), "pid": project.supervisor, "requests": 0, "mail": 1}
    assert team == {**team, **facts, "folder": project.folder.name}
    assert str(project.paths.root) in project.run("teamctl", "teams", "--all", cwd=elsewhere).stdout
    project.do("teamd", "stop")
    project.paths.root.rename(elsewhere / ".team")
    nothing = json.loads(project.do("teamctl", "teams", "--all", "--json"))
    assert nothing == {"teams": []}


def test_trace_without_an_id_lists_the_latest_messages_with_their_ids(project: Project) -> None:
    project.ask_no_service()
    project.start()
    project.do("teamctl", "spawn", "ada", "coder", "Work.", "--wait")
    project.do("teamd", "stop")
    project.do("teamctl", "send", "ada", "Look\nat this.", "--id", "order-66")
    found = json.loads(project.do("teamctl", "trace", "--json"))["messages"]
    assert [(one["content"], one["from"], one["to"], one["state"]) for one in found] == [
        ("Work.", "lead", "ada", "delivered"),
        ("Look\nat this.", "lead", "ada", "waits"),
    ]
    shown = project.do("teamctl", "trace").splitlines()
    assert len(shown) == 3
    assert shown[2].split()[:3] == ["order-66", "lead", "ada"]
    assert shown[2].endswith("Look at this.")
    assert "in the conversation" in project.do("teamctl", "trace", shown[1].split()[0])


def test_trace_of_a_team_without_mail_says_so(project: Project) -> None:
    project.enlist("ada")
    assert project.do("teamctl", "trace").startswith("no messages yet; ")
