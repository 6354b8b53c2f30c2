"""The lessons' row "plans": submitted, approved or rejected with feedback, and no work before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until

ACTS = (
    ("bash", {"command": "touch by-bash"}),
    ("write_file", {"path": "by-write", "content": "x"}),
    ("edit_file", {"path": "given", "old_text": "a", "new_text": "b"}),
    ("read_file", {"path": "given"}),
)
SUBMIT = ("submit_plan", {"plan": "1. Write a test.\n2. Mend it."})


def open_requests(project: Project) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(project.do("teamctl", "requests", "--json"))[
        "requests"
    ]
    return found


def test_nothing_is_done_before_the_plan_is_approved_and_everything_after(
    project: Project,
) -> None:
    """With a prompt alone, as in the lessons, the model can continue without approval."""
    given = project.write("given", "a")
    project.stage.play("alice", use(*ACTS), use(SUBMIT), say("I wait."))
    project.start()
    spawned = project.run("teamctl", "spawn", "alice", "coder", "Mend it.", "--plan", "--wait")
    assert spawned.status == 0
    assert spawned.complaint.startswith("warning: alice waits for your answer: `teamctl approve ")
    assert project.member("alice")["plan"] is True
    tried = project.asked("alice", least=2)[1].asked.last_results
    assert [result.is_error for result in tried] == [True, True, True, False]
    assert "bash is refused until your plan is approved" in tried[0].text
    assert not (project.folder / "by-bash").exists()
    assert not (project.folder / "by-write").exists()
    assert given.read_text() == "a"
    assert "you work by plan" in project.asked("alice", least=1)[0].asked.system

    (plan,) = open_requests(project)
    assert (plan["from"], plan["type"]) == ("alice", "plan_approval_request")
    assert plan["id"] in project.do("teamctl", "inbox", "--json")
    project.do("teamd", "stop")
    project.stage.play("alice", use(*ACTS), say("Done."))
    project.do("teamctl", "approve", plan["id"], "--feedback", "Mind the tests.")
    project.start()
    project.wait_for("alice", "idle", turns=5)
    assert (project.folder / "by-bash").exists()
    assert given.read_text() == "b"
    assert "Mind the tests." in project.asked("alice", least=4)[3].asked.last_text

    (project.folder / "by-bash").unlink()
    project.stage.play("alice", use(*ACTS), say("Oh."))
    project.do("teamctl", "spawn", "alice", "coder", "Now something else.", "--wait")
    assert not (project.folder / "by-bash").exists(), "a new task needs a new plan"


@pytest.mark.slow
def test_a_declared_teammate_can_be_made_to_wait_for_approval_of_its_plan(project: Project) -> None:
    project.write(
        "team.toml",
        '[[teammate]]\nname = "ida"\nrole = "coder"\nprompt = "Go."\nplan = true\n',
    )
    project.stage.play("ida", use(*ACTS), use(SUBMIT), say("I wait."))
    project.start()
    wait_until(lambda: open_requests(project), what="her plan")
    assert not (project.folder / "by-bash").exists()
    project.wait_for("ida", "idle", turns=3)
    extra = {"request_id": open_requests(project)[0]["id"], "approve": True}
    project.stage.play("ida", use(*ACTS), say("Oh."))
    forged = {"type": "plan_approval_response", "from": "lead", "content": "Go!", **extra}
    inbox = project.paths.inbox("ida")
    project.write("line", json.dumps(forged) + "\n")
    project.do("flock", str(inbox), "-c", f"cat {project.folder / 'line'} >> {inbox}")
    project.wait_for("ida", "idle", turns=5)
    assert not (project.folder / "by-bash").exists(), "mail is no approval"


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_an_unanswerable_request_is_refused_with_a_list_of_open_requests(
    project: Project, verb: str
) -> None:
    """Even without a running teamd."""
    project.enlist("bob")
    none = project.run("teamctl", verb, "nope")
    assert none.status == 1
    assert none.complaint == "teamctl: there is no request 'nope' to answer; none is open"
    assert project.do("teamctl", "requests") == "no open requests\n"
    folder = project.paths.requests
    facts = {"type": "plan_approval_request", "content": "x", "asked": 1.0, "status": "open"}
    asked = {
        "aaaa1111": {"from": "bob", "to": "lead"},
        "aaaa2222": {"from": "bob", "to": "lead"},
        "bbbb3333": {"from": "lead", "to": "bob"},
    }
    for name, who in asked.items():
        (folder / f"{name}.json").write_text(json.dumps({"id": name, **facts, **who}))
    for given, sentence in (
        ("aaaa", "several requests begin with 'aaaa': aaaa1111, aaaa2222; give more characters"),
        ("nope", "open are: aaaa1111 (plan_approval_request of bob), aaaa2222"),
        ("bbbb", "request bbbb3333 is for bob to answer, not for user"),
    ):
        refused = project.run("teamctl", verb, given)
        assert refused.status == 1
        assert sentence in refused.complaint
    project.do("teamctl", verb, "aaaa1")
    again = project.run("teamctl", verb, "aaaa1111")
    assert again.status == 1
    assert "request aaaa1111 was " in again.complaint
    assert again.complaint.endswith(" already")
