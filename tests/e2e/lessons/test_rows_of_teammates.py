"""Rows of the lessons' table about a single teammate: its life, its records, and its limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e import stories
from tests.e2e.harness import Project
from tests.e2e.stories import answering, ask_at_work, at_work, told
from tests.strict.asked import Asked
from tests.strict.faults import Stall
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until


def test_teammate(team: Project) -> None:
    """Named, persistent, with role and conversation; spawn, working, idle, …, shutdown."""
    statuses = []

    def tara(asked: Asked) -> Answer:
        statuses.append(team.wait_for("tara", "working")["status"])
        return say(f"That was turn {len(statuses)}.")

    team.stage.act("tara", tara)
    team.do("teamctl", "spawn", "tara", "clerk", "The first word is oak.", "--wait")
    first = team.wait_for("tara", "idle", turns=1)["pid"]
    team.do("teamctl", "send", "tara", "The second is elm.")
    team.wait_for("tara", "idle", turns=2)
    team.do("teamctl", "spawn", "tara", "clerk", "The third is ash.", "--wait")
    assert team.wait_for("tara", "idle", turns=3)["pid"] == first, "one process for all of it"
    team.do("teamctl", "shutdown", "tara")
    assert team.wait_for("tara", "shutdown")["pid"] is None
    assert not Path(f"/proc/{first}").exists()
    team.do("teamctl", "spawn", "tara", "clerk", "Which words?", "--wait")
    assert team.wait_for("tara", "idle", turns=4)["pid"] != first
    assert statuses == ["working"] * 4

    asked = [one.asked for one in team.asked("tara")]
    assert {(one.name, one.role) for one in asked} == {("tara", "clerk")}
    for words in ("oak", "elm", "ash", "That was turn 1.", "That was turn 3.", "Which words?"):
        assert words in asked[-1].heard
    team.do("teamctl", "spawn", "theo", "clerk", "Which words?", "--wait")
    assert "oak" not in team.asked("theo", least=1)[0].asked.heard, "its own conversation"


def test_roster(team: Project) -> None:
    """`config.json` with team name and members; who is online is readable with `cat`."""
    stall = Stall()
    for name, role in (("rita", "coder"), ("rolf", "tester")):
        team.do("teamctl", "spawn", name, role, "Go.", "--wait")
        team.wait_for(name, "idle")
    team.do("teamctl", "shutdown", "rolf")
    team.server.faults.when(lambda asked: asked.name == "ruth", stall)
    team.do("teamctl", "spawn", "ruth", "runner", "Go.")
    assert stall.reached.wait(20)
    shown = json.loads(team.do("cat", ".team/config.json"))
    stall.released.set()

    assert shown["team_name"] == "project"
    members = {m["name"]: m for m in shown["members"] if m["name"] in ("rita", "rolf", "ruth")}
    assert {name: (m["role"], m["status"]) for name, m in members.items()} == {
        "rita": ("coder", "idle"),
        "rolf": ("tester", "shutdown"),
        "ruth": ("runner", "working"),
    }
    assert members["rolf"]["pid"] is None
    for name in ("rita", "ruth"):
        assert Path(f"/proc/{members[name]['pid']}").exists()
    team.wait_for("ruth", "idle")


def test_identity(team: Project) -> None:
    """`name@team`, a colour."""
    for name in ("ida", "ina"):
        team.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")
        team.wait_for(name, "idle")
        assert f"{name}@project" in team.asked(name, least=1)[0].asked.system
    ida, ina = team.member("ida"), team.member("ina")
    assert (ida["agent_id"], ina["agent_id"]) == ("ida@project", "ina@project")
    assert ida["color"] != ina["color"], "who came next to each other can be told apart"
    shown = json.loads(team.do("teamctl", "team", "--json"))["members"]
    told_of = {m["name"]: (m["agent_id"], m["color"]) for m in shown}
    assert told_of["ida"] == ("ida@project", ida["color"])

    code = 30 + ["black", "red", "green", "yellow", "blue", "magenta", "cyan"].index(ida["color"])
    shown_in_colour = team.run("teamctl", "team", env={"FORCE_COLOR": "1"}).stdout
    assert f"\x1b[{code}mida" in shown_in_colour
    assert team.do("teamctl", "send", "ida@project", "Are you it?") == "sent to ida\n"
    wait_until(
        lambda: "Are you it?" in team.asked("ida", least=1)[-1].asked.last_text, what="she reads it"
    )


def test_compaction(tmp_path: Path) -> None:
    """Old results go first, then a summary; the disk keeps all; the teammate knows its name."""
    room = 8500  # tokens; a few results are kept, and earlier ones are worth clearing
    with stories.small(tmp_path, f"context_tokens = {room}", context_tokens=room) as project:
        project.stage.act("alice", stories.steps(20))
        project.start()
        project.do("teamctl", "spawn", "alice", "stepper", stories.TASK)
        wait_until(lambda: "It is XYZZY." in project.mail("lead"), timeout_seconds=60)
        project.wait_for("alice", "idle")

        kinds = [record["record"] for record in project.records("alice")]
        assert kinds.index("cleared") < kinds.index("summary")
        first, later = project.asked("alice", least=1)[0], stories.summarised(project)[0]
        assert "I have come through" in later.asked.heard, "the summary is the model's"
        assert "step 1\n" not in later.asked.heard
        known = "You are 'alice', role: stepper, a member of the team 'project' (alice@project)."
        assert known in stories.first_text(later)
        assert later.body["system"] == first.body["system"]
        done = [record["content"] for record in project.records("alice", "result")]
        assert [f"step {n}" in done[n - 1] for n in range(1, 21)] == [True] * 20
        assert all(len(text) > stories.OUTPUT_BYTES for text in done[:20])
        shown = project.do("teamctl", "transcript", "alice")
        assert shown.index("it sees old results of tools no more") < shown.index(
            "from here on it sees this summary of what was before"
        )


def test_shutdown(project: Project) -> None:
    """Request, approval or rejection with a reason, in its own loop; also for a whole team."""
    project.start()
    project.stage.act("sid", answering("sid", (False, "in mid-task"), (True, "all is done")))
    at_work(project, "sid")
    pid = project.member("sid")["pid"]
    rejected = "sid rejected the shutdown and goes on: in mid-task\n"
    assert ask_at_work(project, "sid", "shutdown", "sid") == (1, "", rejected)
    assert project.member("sid")["pid"] == pid
    approved = "sid approved and is shut down: all is done\n"
    assert ask_at_work(project, "sid", "shutdown", "sid") == (0, approved, "")
    assert not Path(f"/proc/{pid}").exists()

    for name in ("sol", "sue"):
        project.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")
        project.wait_for(name, "idle")
    said = project.do("teamctl", "shutdown", "--all").splitlines()
    assert [line.split(" approved and is shut down")[0] for line in said] == ["sol", "sue"]
    statuses = {m["status"] for m in json.loads(project.paths.config.read_bytes())["members"]}
    assert statuses == {"shutdown"}
    answers = json.loads(project.do("teamctl", "inbox", "--json"))["messages"]
    assert {(m["type"], m["from"]) for m in answers} == {
        ("shutdown_response", name) for name in ("sid", "sol", "sue")
    }


def test_plans(team: Project) -> None:
    """A teammate submits a plan; the lead rejects it with feedback, and approves the next."""
    write = ("write_file", {"path": "mended", "content": "so"})
    lines = (
        (r"Mend it\.", use(write, ("submit_plan", {"plan": "Be quick."}))),
        (r'approve="false" reason="Say how."', use(("submit_plan", {"plan": "With a saw."}))),
        (r'approve="true" reason="Mind your fingers."', use(write)),
    )
    team.stage.act("paul", told(*lines))
    team.do("teamctl", "spawn", "paul", "joiner", "Mend it.", "--plan", "--wait")
    first = _open_plan(team)
    assert (first["from"], first["content"]) == ("paul", "Be quick.")
    assert team.records("paul", "result")[0]["is_error"], "no work before"
    team.do("teamctl", "reject", first["id"], "--reason", "Say how.")
    wait_until(lambda: "With a saw." in team.do("teamctl", "requests"), what="a better plan")
    team.wait_for("paul", "idle", turns=4)
    assert not (team.folder / "mended").exists()
    second = _open_plan(team)["id"]
    team.do("teamctl", "approve", second, "--feedback", "Mind your fingers.")
    wait_until((team.folder / "mended").exists, what="the work")
    team.wait_for("paul", "idle", turns=6)


def _open_plan(team: Project) -> dict[str, Any]:
    (plan,) = json.loads(team.do("teamctl", "requests", "--json"))["requests"]
    return dict(plan)
