"""A team directory of version 0.1 is served unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from tests.e2e.harness import Project
from tests.strict.replies import say, use

BEFORE: Final = Path(__file__).parent / "team_before"


def test_a_team_of_the_previous_version_continues(project: Project) -> None:
    """Its members remember, its mail is read once, its plan is answered, its calls are counted."""
    project.paths.root.parent.mkdir(exist_ok=True)
    shutil.copytree(BEFORE, project.paths.root)
    project.stage.play("bob", say("I remember."))
    project.start()

    bob = project.wait_for("bob", "idle", turns=4)
    assert bob["input_tokens"] > 7271, "what it used before counts"
    heard = project.asked("bob", least=1)[0].asked.heard
    for words in ("Remember: blue.", "made", "Read me later."):
        assert words in heard
    shown = json.loads(project.do("teamctl", "team", "--json"))["members"]
    assert [(m["name"], m["status"]) for m in shown] == [
        ("bob", "idle"),
        ("carol", "idle"),
        ("dora", "shutdown"),
    ]

    mail = project.do("teamctl", "inbox")
    assert "Bob has begun." in mail
    assert project.do("teamctl", "inbox") != mail
    tasks = json.loads(project.do("teamctl", "tasks", "--json"))["tasks"]
    assert [(t["subject"], t["owner"], t["blocked_by"]) for t in tasks] == [
        ("From bob", "", []),
        ("First", "bob", []),
        ("Second", "", ["2"]),
    ]

    project.stage.play("carol", use(("bash", {"command": "echo built > built"})), say("Done."))
    (request,) = json.loads(project.do("teamctl", "requests", "--json"))["requests"]
    project.do("teamctl", "approve", request["id"])
    project.wait_for("carol", "idle", turns=4)
    assert (project.folder / "built").read_text(encoding="utf-8") == "built\n"
    project.do("teamctl", "spawn", "dora", "clerk", "Come again.", "--wait")
    assert "Come and go." in project.asked("dora", least=1)[0].asked.heard
    used = json.loads(project.do("teamctl", "usage", "--json"))
    assert sum(member["calls"] for member in used["members"]) >= 6 + 4
    assert "Remember: blue." in project.do("teamctl", "transcript", "bob")
