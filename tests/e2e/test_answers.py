"""Requests are answered by the name of who waits, too; a rejection has a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.e2e.terminal import Terminal
from tests.strict.replies import say, use

if TYPE_CHECKING:
    from tests.e2e.harness import Project


def asks(project: Project, name: str, times: int = 1) -> None:
    """Spawn somebody that submits a plan and waits."""
    plans = [use(("submit_plan", {"plan": "This."})) for _ in range(times)]
    project.stage.play(name, *plans, say("I wait."), say("I go on."))
    project.do("teamctl", "spawn", name, "coder", "Go.", "--plan", "--wait")


def test_a_request_is_answered_by_the_name_of_who_waits(team: Project) -> None:
    asks(team, "pia")
    assert team.do("teamctl", "approve", "Pia", "--feedback", "Mind the tests.").startswith(
        "approved the plan of pia ("
    )
    team.wait_for("pia", "idle", turns=3)
    assert "Mind the tests." in team.do("teamctl", "transcript", "pia")
    refused = team.run("teamctl", "approve", "pia")
    assert refused.status == 1
    assert refused.complaint.startswith("teamctl: there is no request 'pia' to answer; ")


def test_of_several_requests_one_is_named_by_its_id(team: Project) -> None:
    asks(team, "quinn")
    asks(team, "quinn2")
    found = json.loads(team.do("teamctl", "requests", "--json"))["requests"]
    (first,) = [one for one in found if one["from"] == "quinn"]
    path = team.paths.request("f00df00d")
    copy = {**json.loads(team.paths.request(first["id"]).read_bytes()), "id": "f00df00d"}
    path.write_text(json.dumps(copy))
    refused = team.run("teamctl", "reject", "quinn", "--reason", "No.")
    assert refused.status == 1
    ids = sorted([first["id"], "f00df00d"])
    assert refused.complaint.startswith("teamctl: quinn waits for several answers: ")
    assert all(f"{one} (plan)" in refused.complaint for one in ids)
    assert refused.complaint.endswith("; name one by its id")
    path.unlink()
    team.do("teamctl", "reject", "quinn", "--reason", "No.")
    team.do("teamctl", "approve", "quinn2")


def test_a_terminal_asks_for_the_reason_of_a_rejection(team: Project) -> None:
    asks(team, "rolf")
    terminal = Terminal(team, "teamctl", "reject", "rolf")
    terminal.sees("Why, and what should change?")
    terminal.type(b"Too long.\n")
    terminal.sees("rejected the plan of rolf")
    terminal.close()
    team.wait_for("rolf", "idle", turns=3)
    assert "Too long." in team.do("teamctl", "transcript", "rolf")
