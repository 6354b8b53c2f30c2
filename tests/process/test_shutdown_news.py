"""An agent that requests a shutdown is informed of its result, no matter who else has asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any

import pytest

from teamd.control import Asking
from teamd.messages import new_id
from tests.e2e.harness import Project
from tests.e2e.stories import answering, at_work
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


PATIENCE_SECONDS = 0.5  # the tool allows a minute


def ask(project: Project, name: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Request a shutdown as the lead agent's tool does."""
    facts = {"name": name, "seconds": seconds, "by_mail": True}
    Asking(project.paths, "lead").begin("shutdown", facts, key=new_id(), seconds=30)


def told(project: Project, about: str) -> list[dict[str, Any]]:
    """Return the messages in the lead's inbox about a teammate's shutdown, each once."""
    there = [json.loads(line) for line in project.mail("lead").splitlines()]
    answers = {one["id"]: one for one in there if one["type"] == "shutdown_response"}
    return [one for one in answers.values() if about in one["content"]]


def question(project: Project, name: str) -> dict[str, Any]:
    """Return a teammate's newest shutdown request, or an empty dictionary."""
    found = [json.loads(path.read_bytes()) for path in project.paths.requests.glob("*.json")]
    about = [one for one in found if one["to"] == name]
    return max(about, key=lambda one: one["asked"], default={})


def test_the_asker_is_informed_when_a_teammate_is_killed_without_an_answer(
    project: Project,
) -> None:
    project.start()
    project.stage.act("nina", answering("nina"))
    at_work(project, "nina")
    ask(project, "nina")
    wait_until(lambda: told(project, "nina"), what="the lead is told")
    (news,) = told(project, "nina")
    assert news["from"] == "teamd"
    assert news["content"] == f"nina did not answer within {PATIENCE_SECONDS} s and was ended"
    assert "approve" not in news
    assert project.member("nina")["status"] == "shutdown"


@pytest.mark.parametrize(
    ("name", "seconds", "why"),
    [("nobody", 30.0, "no teammate named 'nobody'"), ("quinn", -1.0, "teamd saw it too late")],
)
def test_the_asker_is_informed_of_a_request_that_failed(
    project: Project, name: str, seconds: float, why: str
) -> None:
    """The supervisor's answer is not collected."""
    project.start()
    asking = Asking(project.paths, "lead")
    asking.begin(
        "shutdown", {"name": name, "seconds": 1, "by_mail": True}, key="k", seconds=seconds
    )
    wait_until(lambda: project.mail("lead"), what="the lead is told")
    news = json.loads(project.mail("lead"))
    assert (news["id"], news["from"]) == ("k-answer", "teamd")
    assert f"your request 'shutdown' was not carried out: {why}" in news["content"]


def test_a_supervisor_killed_during_a_shutdown_informs_the_asker_after_its_restart(
    project: Project,
) -> None:
    """The message counts once: each copy has the same id."""
    project.start()
    project.stage.act("paul", answering("paul"))
    at_work(project, "paul")
    os.kill(project.member("paul")["pid"], signal.SIGSTOP)  # so that it cannot answer
    ask(project, "paul", seconds=2)  # the kill comes first
    wait_until(lambda: question(project, "paul").get("sent"), what="it is asked")
    os.kill(project.supervisor, signal.SIGKILL)
    deadline = question(project, "paul")["deadline"]
    wait_until(lambda: time.time() > deadline, what="its time is over")
    project.start()
    wait_until(lambda: told(project, "paul did not answer"), what="the lead is told")
    assert len(told(project, "paul")) == 1
    assert question(project, "paul")["settled"]


def test_two_askers_of_one_shutdown_are_each_informed_once(project: Project) -> None:
    """A person's `teamctl shutdown` came first; the lead agent's tool joins it."""
    project.start()

    def lead(asked: Asked) -> Answer:
        if "End rosa." in asked.last_text:
            return use(("shutdown_request", {"teammate": "rosa"}))
        return say("I see.")

    project.stage.act("lead", lead)
    project.stage.act("rosa", answering("rosa", (True, "so I say")))
    at_work(project, "rosa")
    project.do("teamctl", "chat", "Hello.")
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    asking = project.begin("teamctl", "shutdown", "rosa", "--timeout", "50", **quiet)
    wait_until(lambda: "shutdown_request" in project.mail("rosa"), what="the person's request")
    project.do("teamctl", "chat", "End rosa.")
    wait_until(lambda: question(project, "rosa")["listeners"] == ["lead"], what="it has joined")
    project.write("go-rosa", "")
    assert asking.wait(30) == 0
    verdict = 'approve="true" reason="so I say"'
    wait_until(
        lambda: verdict in project.asked("lead", least=1)[-1].asked.last_text, what="the lead reads"
    )
    assert (
        json.dumps(project.asked("lead", least=1)[-1].body).count("so I say") == 2
    )  # reason and content
    mine = json.loads(project.do("teamctl", "inbox", "--json"))["messages"]
    assert [(m["approve"], m["reason"]) for m in mine] == [(True, "so I say")]
    assert question(project, "rosa")["listeners"] == []
