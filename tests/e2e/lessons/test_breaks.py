"""Failures specific to an agent as lead: its mail, its tokens, its memory, and its own end."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress

from tests.e2e.harness import Project
from tests.e2e.stories import told
from tests.strict.replies import say, use
from tests.waiting import wait_until

SPAWN = ("spawn_teammate", {"name": "bob", "role": "tester", "prompt": "Wait."})


def test_the_inbox_command_does_not_take_mail_of_the_lead(project: Project) -> None:
    """The lessons' `/inbox` drains mail that the leading agent has not read yet."""
    project.start()
    project.stage.play("lead", say("Here I am."))
    project.do("teamctl", "chat", "Hello.")
    project.do("teamd", "stop")
    project.do("teamctl", "send", "lead", "For the agent.")
    waiting = project.mail("lead")
    assert project.do("teamctl", "inbox") == "no new mail\n"
    for _ in range(2):
        assert "For the agent." in project.do("teamctl", "inbox", "lead")
    assert project.mail("lead") == waiting
    project.start()
    wait_until(lambda: "For the agent." in project.asked("lead", least=1)[-1].asked.last_text)


def test_the_person_sees_their_mail_after_the_lead_agent_has_left(project: Project) -> None:
    """It was sent to `user`; now the person is `lead` again, and has two inboxes."""
    project.start()
    words = (("send_message", {"to": "user", "content": f"Words {n}."}) for n in (1, 2))
    project.stage.play("lead", *map(use, words), say("I have written."))
    project.do("teamctl", "chat", "Write to me.")
    project.do("teamctl", "shutdown", "lead")
    project.do("teamctl", "send", "lead", "Words 3.", "--from", "cron")
    peeked = project.do("teamctl", "inbox", "--peek")
    mail = json.loads(project.do("teamctl", "inbox", "--json"))["messages"]
    assert [m["content"] for m in mail if m["type"] == "message"] == [
        "Words 1.",
        "Words 2.",
        "Words 3.",
    ]
    assert [m["from"] for m in mail if m["type"] == "shutdown_response"] == ["lead"]
    assert [words in peeked for words in ("Words 1.", "Words 3.")] == [True, True]
    assert project.do("teamctl", "inbox") == "no new mail\n"
    ways = [
        json.loads(project.do("teamctl", "trace", m["id"], "--json"))["receivers"] for m in mail
    ]
    assert [[way["stage"] for way in found] for found in ways] == [["delivered"]] * 4


def test_idle_teammates_cost_the_lead_no_tokens(project: Project) -> None:
    """The roster shows that a teammate is idle; no mail is sent."""
    project.stage.act("lead", told(("Have him", use(SPAWN))))
    project.start()
    project.do("teamctl", "chat", "Have him.")
    for turns in (1, 2, 3):
        project.wait_for("bob", "idle", turns=turns)
        project.do("teamctl", "send", "bob", "Again.", "--wait")
    project.wait_for("bob", "idle", turns=4)
    project.wait_for("lead", "idle", turns=2)
    assert len(project.asked("lead")) == 2
    assert [m["from"] for r in project.records("lead", "mail") for m in r["messages"]] == ["user"]
    assert (project.mail("lead"), project.mail("user")) == ("", "")


def test_an_idle_teammate_is_not_taken_for_dead(project: Project) -> None:
    """The lead sees that it is idle, and another spawn wakes the same teammate."""
    project.start()
    project.stage.play("lead", use(SPAWN), say("So."))
    project.do("teamctl", "chat", "Have bob.")
    pid = project.wait_for("bob", "idle")["pid"]
    project.stage.play("lead", use(("list_teammates", {})), use(SPAWN), say("So."))
    project.do("teamctl", "chat", "Have bob again.")
    project.wait_for("bob", "idle", turns=2)
    assert project.records("lead", "result")[1]["content"] == "bob (tester): idle"
    assert "one that is idle is not dead" in project.asked("lead", least=1)[0].asked.system
    assert project.member("bob")["pid"] == pid
    assert project.asked("bob", least=2)[1].asked.heard.count("Wait.") == 2
    members = json.loads(project.paths.config.read_bytes())["members"]
    assert [m["name"] for m in members] == ["lead", "bob"]


def test_the_lead_knows_its_team_after_a_compaction(project: Project) -> None:
    """The members are listed next to the summary, which may leave them out."""
    project.start()
    project.stage.play("lead", use(SPAWN), say("So."), say("We talked."), say("I know them."))
    project.do("teamctl", "chat", "Have bob.")
    project.wait_for("bob", "idle")
    project.do("teamctl", "chat", stdin="/compact\nWho is there?\n")
    wait_until(lambda: project.records("lead", "summary"), what="the summary")
    heard = project.asked("lead", least=1)[-1].asked.heard
    assert "<summary>\nWe talked.\n</summary>" in heard
    assert "Your teammates:\n- bob (tester): idle\n" in heard
    assert "You are 'lead', role: lead, a member of the team 'project'" in heard


def test_the_person_can_answer_for_the_lead_agent(project: Project) -> None:
    """A plan goes to the agent, but the person may still decide."""
    project.start()
    project.do("teamctl", "chat", "Hello.")
    plan = ("submit_plan", {"plan": "One step."})
    project.stage.act("pat", told(("Act", use(plan)), ('approve="true"', say("I act."))))
    project.do("teamctl", "spawn", "pat", "coder", "Act.", "--plan", "--wait")
    wait_until(
        lambda: "One step." in project.asked("lead", least=1)[-1].asked.heard, what="it has come"
    )
    (asked,) = json.loads(project.do("teamctl", "requests", "--json"))["requests"]
    review = ("review_plan", {"request_id": asked["id"], "approve": False})
    project.do("teamctl", "approve", asked["id"])
    project.wait_for("pat", "idle", turns=3)
    project.stage.play("lead", use(review), say("Too late."))
    assert project.do("teamctl", "chat", "Reject it.") == "Too late.\n"
    (result,) = project.records("lead", "result")
    assert result["is_error"]
    assert f"request {asked['id']} was approved already" in result["content"]


def test_the_person_is_told_when_the_lead_agent_fails(project: Project) -> None:
    """Otherwise the failure would go unnoticed, since the agent no longer reads its mail."""
    project.write("team.toml", "[supervision]\ncrashes = 1\n")
    project.start()
    project.do("teamctl", "chat", "Hello.")

    def failed() -> bool:
        member = project.member("lead")
        if member["pid"] is not None:
            with suppress(ProcessLookupError):
                os.kill(member["pid"], signal.SIGKILL)
        return bool(member["status"] == "failed")

    wait_until(failed, what="the lead has failed")
    told_so = project.do("teamctl", "inbox")
    assert "lead has failed: " in told_so
    assert "`teamctl chat` resumes it" in told_so
    shown = project.do("teamctl", "team").splitlines()
    assert shown[0].startswith("lead has failed: ")
    assert shown[2].split()[:3] == ["lead", "lead", "failed"]
    project.stage.play("lead", say("I am back."))
    assert project.do("teamctl", "chat", "Go on.") == "I am back.\n"
