"""Rows of the lessons' table about mail: storage, delivery, and kinds of messages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

from tests.e2e.harness import Project
from tests.e2e.stories import REQUEST, WORK, told
from tests.strict.asked import Asked
from tests.strict.faults import Stall
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until


def test_mailbox(project: Project) -> None:
    """Append-only JSONL, drained on read; survives crashes and reboots; readable with `grep`."""
    project.start()
    project.do("teamctl", "spawn", "mia", "clerk", "Go.", "--wait")
    project.wait_for("mia", "idle")
    project.do("teamd", "stop")
    inbox = project.paths.inbox("mia")
    kept = []
    for words in ("one", "two"):
        project.do("teamctl", "send", "mia", f"This is {words}.")
        kept.append(inbox.read_bytes())
    file = inbox.stat().st_ino
    assert kept[1].startswith(kept[0]), "append-only"
    found = project.do("grep", "-h", "This is", ".team/inbox/mia.jsonl").splitlines()
    assert [json.loads(line)["content"] for line in found] == ["This is one.", "This is two."]

    stall = Stall()
    project.server.faults.when(lambda asked: "This is one." in asked.last_text, stall)
    project.start()
    assert stall.reached.wait(20)
    for pid in (project.supervisor, project.member("mia")["pid"]):
        os.kill(pid, signal.SIGKILL)
    stall.released.set()
    project.do("teamctl", "send", "mia", "This is three.")
    project.start()
    wait_until(
        lambda: "This is three." in project.asked("mia", least=1)[-1].asked.heard, what="all mail"
    )
    project.wait_for("mia", "idle")
    heard = project.asked("mia", least=1)[-1].asked.heard
    assert [heard.count(f"This is {words}.") for words in ("one", "two", "three")] == [1, 1, 1]
    assert (inbox.read_bytes(), inbox.stat().st_ino) == (b"", file), "drained, the same file"

    project.do("teamctl", "send", "lead", "To the lead.", "--from", "mia")
    project.do("grep", "-q", "To the lead.", ".team/inbox/lead.jsonl")
    assert "To the lead." in project.do("teamctl", "inbox")
    assert project.mail("lead") == ""


def test_delivery(team: Project) -> None:
    """The inbox is checked before every model call; mail wakes an idle teammate."""

    def dora(asked: Asked) -> Answer:
        calls = len(team.asked("dora"))
        if calls > 3:
            return say("No more.")
        team.do("teamctl", "send", "dora", f"News {calls}.")
        return use(("read_inbox", {}))

    team.stage.act("dora", dora)
    team.do("teamctl", "spawn", "dora", "clerk", "Go.", "--wait")
    team.wait_for("dora", "idle", turns=4)
    asked = [one.asked for one in team.asked("dora")]
    for number, one in enumerate(asked[1:], start=1):
        assert f"News {number}." in one.last_text
        assert one.last_results[0].text.startswith("1 new message")
        assert one.heard.count("News 1.") == 1
    assert len(asked) == 4, "without mail no call"
    team.do("teamctl", "send", "dora", "Wake up.")
    wait_until(lambda: len(team.asked("dora")) == 5, what="she wakes")
    assert "Wake up." in team.asked("dora", least=1)[-1].asked.last_text


def test_messages(project: Project) -> None:
    """`message`, `broadcast`, shutdown and plan with their answers; other kinds may follow."""

    def reject(found: re.Match[str]) -> Answer:
        answer = {"request_id": found[1], "approve": False, "reason": "busy"}
        return use(("shutdown_response", answer))

    lines = (
        ("Go", use(("submit_plan", {"plan": "Wait for it."}))),
        ('type="plan_approval_response"', use(("bash", {"command": WORK.format(name="mel")}))),
        (REQUEST.pattern, reject),
    )
    project.stage.act("mel", told(*lines))
    project.start()
    project.do("teamctl", "spawn", "mel", "clerk", "Go.", "--plan", "--wait")
    (plan,) = json.loads(project.do("teamctl", "requests", "--json"))["requests"]
    project.do("teamctl", "approve", plan["id"])
    wait_until((project.folder / "busy-mel").exists, what="mel works")
    project.do("teamctl", "send", "mel", "A plain one.")
    project.do("teamctl", "broadcast", "To all.")
    project.do("teamctl", "send", "mel", "Rain.", "--type", "weather")
    asking = project.begin("teamctl", "shutdown", "mel", "--timeout", "50", stderr=subprocess.PIPE)
    wait_until(lambda: "shutdown_request" in project.mail("mel"), what="the request")
    project.write("go-mel", "")
    assert "rejected the shutdown" in asking.communicate(timeout=60)[1]

    heard = project.asked("mel", least=1)[-1].asked.heard
    for kind, words in (
        ("message", "A plain one."),
        ("broadcast", "To all."),
        ("weather", "Rain."),
    ):
        assert f'<teammate-message teammate_id="lead" type="{kind}">\n{words}\n' in heard
    answered = f'type="plan_approval_response" request_id="{plan["id"]}" approve="true"'
    assert answered in heard
    assert REQUEST.search(heard)
    mail = json.loads(project.do("teamctl", "inbox", "--json"))["messages"]
    assert [(m["type"], m["from"], m.get("approve"), m.get("reason")) for m in mail] == [
        ("plan_approval_request", "mel", None, None),
        ("shutdown_response", "mel", False, "busy"),
    ]


def test_broadcast(project: Project) -> None:
    """Everyone but the sender, which may be a teammate, a leading agent, or the person."""
    lines = (
        ("Tell all", use(("broadcast", {"content": "From the agent."}))),
        ("From the agent|sent to", say("They know.")),
    )
    project.stage.act("lead", told(*lines))
    project.start()
    for name in ("ann", "bob", "cy", "gone"):
        project.do("teamctl", "spawn", name, "clerk", "Go.", "--wait")
        project.wait_for(name, "idle")
    project.do("teamctl", "shutdown", "gone")
    assert project.do("teamctl", "broadcast", "From bob.", "--from", "bob") == "sent to ann, cy\n"
    assert project.do("teamctl", "broadcast", "From me.") == "sent to ann, bob, cy\n"
    assert project.do("teamctl", "chat", "Tell all.") == "They know.\n"
    everybody = "sent to ann, bob, cy, lead\n"
    assert project.do("teamctl", "broadcast", "From me again.") == everybody

    wanted = {
        "ann": ["bob", "lead", "lead", "user"],
        "bob": ["lead", "lead", "user"],
        "cy": ["bob", "lead", "lead", "user"],
        "lead": ["user"],
        "gone": [],
    }

    def got() -> dict[str, list[str]]:
        return {
            name: [m["from"] for r in project.records(name, "mail") for m in _broadcasts(r)]
            for name in wanted
        }

    wait_until(lambda: got() == wanted, what="everybody has read all of it")
    assert project.mail("gone") == ""


def _broadcasts(record: dict[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    return [message for message in record["messages"] if message["type"] == "broadcast"]
