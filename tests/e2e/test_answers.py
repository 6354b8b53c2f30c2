"""Requests can also be answered by the name of the waiting teammate; a rejection has a reason."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.mail.routing import MailRouter
from teamd.team.states import Status
from tests.e2e.harness import Project
from tests.e2e.terminal import Terminal
from tests.strict.replies import say, use


def asks(project: Project, name: str, times: int = 1) -> None:
    """Spawn a teammate that submits plans and waits."""
    plans = [use(("submit_plan", {"plan": "This."})) for _ in range(times)]
    project.stage.play(name, *plans, say("I wait."), say("I go on."))
    project.do("teamctl", "spawn", name, "coder", "Go.", "--plan", "--wait")


def test_a_request_can_be_answered_by_naming_the_waiting_teammate(team: Project) -> None:
    asks(team, "pia")
    assert team.do("teamctl", "approve", "Pia", "--feedback", "Mind the tests.").startswith(
        "approved the plan of pia ("
    )
    team.wait_for("pia", "idle", turns=3)
    assert "Mind the tests." in team.do("teamctl", "transcript", "pia")
    refused = team.run("teamctl", "approve", "pia")
    assert refused.status == 1
    why = "pia asks for nothing: it is idle; `teamctl send pia TEXT` gives it something to do"
    assert refused.complaint.startswith(f"teamctl: {why}; ")


@pytest.mark.slow
def test_answering_a_teammate_without_a_request_names_its_state_and_the_next_step(
    project: Project,
) -> None:
    """`no request` alone did not say whether it works, rests or has ended, or which one waits."""
    project.enlist("bead", "ann")
    approvals = Approvals(project.paths, MailRouter(project.paths, durable=False, max_bytes=10_000))

    def refused() -> str:
        done = project.run("teamctl", "approve", "BEAD")
        assert done.status == 1
        return done.complaint.removeprefix("teamctl: ")

    start = "; no teamd runs, `teamd start` starts it"
    said = {
        Status.IDLE: f"is idle; `teamctl send bead TEXT` gives it something to do{start}",
        Status.WORKING: f"is stopped in the middle of its work{start}",
        Status.SHUTDOWN: f"is shut down; `teamctl spawn bead ROLE TASK` wakes it{start}",
    }
    for status, state in said.items():
        project.enlist("bead", "ann", status=status)
        assert refused() == f"bead asks for nothing: it {state}; nobody else waits for you"
    reason = "paused by the person; `teamctl resume bead` resumes it"
    project.enlist("bead", status="paused", reason=reason, paused_by="user", role="")
    assert refused().startswith(f"bead asks for nothing; bead is {reason}; nobody")
    project.enlist("bead", "ann")
    plan: dict[str, Any] = {"type": Kind.PLAN, "content": "This.", "asked": time.time()}
    approvals.ask(Approval(id="bead1234", asker="ann", to="lead", **plan))
    assert refused().endswith("; open are those of ann (plan bead1234)")
    assert approvals.match("bead1234").is_open  # even though its id begins with the name
    approvals.ask(Approval(id="f00d", asker="bead", to="ann", **plan))
    assert refused().startswith("bead waits for ann to answer its plan, not for you; open are")


@pytest.mark.slow
def test_one_of_several_requests_is_chosen_by_its_id(team: Project) -> None:
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
    twice = team.run("teamctl", "reject", "quinn", "No.", "--reason", "No.")
    assert twice.status == 2
    assert twice.stderr.endswith("Error: give the reason once: as REASON or with --reason\n")
    team.do("teamctl", "reject", "quinn", "No.")
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
