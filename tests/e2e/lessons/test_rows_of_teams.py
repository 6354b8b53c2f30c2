"""Rows of the lessons' table about leads, and about several teams."""

from __future__ import annotations

import json

from teamd.agent.conversation.prompts import DEMAND
from tests.e2e.harness import Project
from tests.e2e.stories import answering, ask_at_work
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use


def test_lead(project: Project) -> None:
    """A person at the command line, or an agent that a person talks to; `/team` and `/inbox`."""
    project.start()
    project.stage.play("al", use(("send_message", {"to": "lead", "content": "Done."})), say("So."))
    project.do("teamctl", "spawn", "al", "clerk", "Do it.", "--wait")
    assert 'teammate_id="lead"' in project.asked("al", least=1)[0].asked.last_text
    assert "Done." in project.do("teamctl", "inbox"), "the person leads"

    def lead(asked: Asked) -> Answer:
        if asked.last_text.endswith(DEMAND):
            return say("I was greeted.")
        if "Hello." in asked.last_text:
            project.do("teamctl", "send", "lead", "In between.", "--from", "al")
            return use(("send_message", {"to": "user", "content": "A note."}))
        return say("I have read that." if "In between." in asked.last_text else "Well.")

    project.stage.act("lead", lead)
    words = ("Hello.", "/team", "/inbox", "/tasks", "/compact", "/help", "/quit", "Not read.")
    shown = project.do("teamctl", "chat", stdin="\n".join(words) + "\n")
    rows = [line.split() for line in shown.splitlines()]
    assert ["al", "clerk", "idle"] in [row[:3] for row in rows], "/team"
    assert "I have read that." in shown, "its inbox is looked at before its model calls too"
    assert "✉ al → lead: In between." in shown
    assert "A note." in project.paths.transcript("user").read_text(), "/inbox"
    assert "no tasks; " in shown, "/tasks"
    assert [r["text"] for r in project.records("lead", "summary")] == ["I was greeted."]
    for command in words[1:-1]:
        assert command in [row[0] for row in rows if row], "/help"
    assert "Not read." not in project.paths.transcript("lead").read_text(), "/quit"
    assert project.member("lead")["pid"] is not None


def test_several_teams(project: Project) -> None:
    """Create, list, delete; deleting asks all to shut down and then removes the team."""
    project.start()
    project.do("teamctl", "create", "web")
    listed = json.loads(project.do("teamctl", "teams", "--json"))["teams"]
    assert [(team["name"], team["running"]) for team in listed] == [
        ("project", True),
        ("web", True),
    ]
    project.stage.act("wanda", answering("wanda", (False, "not yet"), (True, "now")))
    web = ("teamctl", "--team", "web")
    project.do(*web, "spawn", "wes", "clerk", "Go.", "--wait")
    project.do(*web, "spawn", "wanda", "clerk", "Go.")
    folder = project.folder / ".teams" / "web"
    assert "wes" in project.do(*web, "team")
    assert "wes" not in project.do("teamctl", "team")
    assert _deleted(project) == (1, "not yet")
    assert folder.exists()
    assert _deleted(project) == (0, "team web is deleted")
    assert not folder.exists()
    gone = project.run("teamctl", "delete", "web")
    assert gone.status == 1
    assert gone.complaint.startswith("teamctl: no team named 'web'; there are: project; ")
    assert [line.split()[0] for line in project.do("teamctl", "teams").splitlines()[1:]] == [
        "project"
    ]
    assert not [line for line in project.survivors().values() if "web" in line]


def _deleted(project: Project) -> tuple[int, str]:
    """Ask for the deletion while wanda works, and let her reach her next model call."""
    inbox = project.folder / ".teams" / "web" / "inbox" / "wanda.jsonl"
    status, *texts = ask_at_work(project, "wanda", "delete", "web", inbox=inbox)
    said = "".join(texts)
    words = "not yet" if "not yet" in said else "team web is deleted"
    assert words in said
    return status, words
