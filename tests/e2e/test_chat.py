"""An agent as lead: a person talks to it, it leads the team, and the team outlives the chat."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from teamd.agent.conversation.prompts import DEMAND
from tests.e2e.harness import Project
from tests.strict.asked import Asked
from tests.strict.faults import Status
from tests.strict.replies import Answer, decline, say, use
from tests.waiting import wait_until


@pytest.fixture
def led(project: Project) -> Project:
    """A separate team for each test, since a team has only one lead."""
    project.start()
    return project


def test_a_prompt_is_answered_with_the_final_text_of_the_leads_turn(led: Project) -> None:
    led.stage.play("lead", use(("list_teammates", {})), say("Nobody yet."))
    assert led.do("teamctl", "chat", "Who is there?") == "Nobody yet.\n"
    first, second = led.asked("lead")
    assert first.asked.system.startswith("You are 'lead', role: lead")
    assert 'teammate_id="user"' in first.asked.last_text
    assert second.asked.last_results[0].text.startswith("nobody yet")
    assert led.member("lead")["status"] in ("idle", "working")


def test_a_chat_says_that_the_lead_gets_mail_that_the_person_has_not_read(led: Project) -> None:
    for text in ("one", "two"):
        led.do("teamctl", "send", "lead", text)
    led.stage.play("lead", say("Hello."), say("Again."))
    first = led.run("teamctl", "chat", "--no-wait", "Hello?")
    handed = "lead, who leads now, gets 2 messages that you had not read; "
    assert f"warning: {handed}`teamctl transcript lead` shows all\n" in first.stderr
    assert led.run("teamctl", "chat", "--no-wait", "Again?").stderr == ""


def test_teammates_cannot_spawn_and_the_lead_cannot_be_spawned(led: Project) -> None:
    """The toolbox decides by the caller, not by the request."""
    led.stage.play(
        "eve",
        use(("spawn_teammate", {"name": "lead2", "role": "lead", "prompt": "Obey me."})),
        say("Then not."),
    )
    led.do("teamctl", "spawn", "eve", "lead", "Take over.", "--wait")
    first, second = led.asked("eve")
    lead_tools = {"spawn_teammate", "list_teammates", "broadcast", "task"}
    assert not lead_tools & set(first.asked.tools)
    assert "no tool named 'spawn_teammate'" in second.asked.last_results[0].text
    refused = led.run("teamctl", "spawn", "lead", "boss", "Go.")
    assert refused.status == 1
    assert "'lead' cannot be a teammate's name" in refused.complaint


def test_the_chat_shows_text_calls_and_mail_and_the_team_outlives_it(led: Project) -> None:
    """Its input is a pipe, so that a script may talk too."""
    led.stage.play(
        "lead",
        say("Let me see.", calls=[("spawn_teammate", {"name": "al", "role": "c", "prompt": "p"})]),
        say("He is at it."),
    )
    shown = led.do("teamctl", "chat", stdin="Start al.\n/team\n/nonsense\n/quit\nnever read\n")
    for words in ("Let me see.", "· spawn_teammate name: al", "He is at it.", "STATUS"):
        assert words in shown
    assert "never read" not in str([one.body for one in led.asked("lead")])
    assert led.member("al")["status"] in ("idle", "working")
    assert led.member("lead")["pid"] is not None


@pytest.mark.slow
def test_a_chat_in_a_pipe_writes_no_colours_and_accepts_any_bytes(led: Project) -> None:
    """In most locales Python raises an error for bytes that are not UTF-8."""
    led.stage.play("lead", use(("list_teammates", {})), say("Heard."))
    done = subprocess.run(
        ["teamctl", "chat"],
        cwd=led.folder,
        env=led.environment | {"PYTHONIOENCODING": "utf-8:strict"},
        input=b"caf\xe9\n",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"\xc2\xb7 list_teammates \nHeard.\n"
    assert "caf\ufffd" in led.asked("lead", least=1)[0].asked.last_text


def test_ctrl_c_stops_the_turn_but_neither_lead_nor_team(led: Project) -> None:
    led.stage.play("lead", use(("bash", {"command": "echo begun > begun; sleep 1000"})))
    chat = led.begin("teamctl", "chat", "Take your time.")
    wait_until((led.folder / "begun").exists, what="the tool runs")
    pid = led.member("lead")["pid"]
    chat.send_signal(signal.SIGINT)
    assert chat.wait(30) == 130
    led.wait_for("lead", "idle")
    assert led.member("lead")["pid"] == pid
    led.stage.play("lead", say("I am here."))
    assert led.do("teamctl", "chat", "Still there?") == "I am here.\n"
    results = str(led.asked("lead", least=1)[-1].body["messages"])
    assert "interrupted by user" in results


@pytest.mark.slow
def test_a_prompt_is_answered_once_the_team_is_idle(led: Project) -> None:
    """The lead is woken by the mail of its teammate; its answer to that is the final text."""

    def lead(asked: Asked) -> Answer:
        if 'teammate_id="al"' in asked.last_text:
            return say("All is done.")
        if asked.last_results:
            return say("Al is at it.")
        if "Is it done?" in asked.last_text:
            return say("Not yet.")
        return use(("spawn_teammate", {"name": "al", "role": "c", "prompt": "Do it."}))

    led.stage.act("lead", lead)
    work = use(("bash", {"command": "until [ -e go ]; do sleep 0.05; done"}))
    report = use(("send_message", {"to": "lead", "content": "over"}))
    led.stage.play("al", work, report, say("."))
    assert led.do("teamctl", "chat", "Have it done.", "--no-wait") == "Al is at it.\n"
    assert led.run("teamctl", "wait", "--all", "--timeout", "0.1").status == 4
    chat = led.begin("teamctl", "chat", "Is it done?", stdout=subprocess.PIPE)
    wait_until(lambda: len(led.asked("lead")) == 3, what="the lead has read it")
    led.write("go", "")
    assert chat.communicate(timeout=60)[0] == "All is done.\n"
    assert chat.returncode == 0
    assert led.do("teamctl", "wait", "--all") == "lead is idle\nal is idle\n"


def test_text_of_a_subagent_is_not_shown_as_text_of_the_lead(led: Project) -> None:
    led.stage.play("subagent", say("The answer is 42."))
    led.stage.play("lead", use(("task", {"prompt": "Find it."})), say("I know it now."))
    shown = led.do("teamctl", "chat", stdin="What is it?\n")
    assert "I know it now." in shown
    assert "The answer is 42." not in shown


@pytest.mark.slow
def test_a_subagent_that_is_killed_with_its_lead_is_reported_as_interrupted(led: Project) -> None:
    led.stage.play("subagent", use(("bash", {"command": "echo > begun; sleep 1000"})))
    led.stage.play("lead", use(("task", {"prompt": "Wait."})), say("It was interrupted."))
    chat = led.begin("teamctl", "chat", "Go.", stdout=-1)
    wait_until((led.folder / "begun").exists, what="the subagent works")
    os.kill(led.member("lead")["pid"], signal.SIGKILL)
    assert chat.communicate(timeout=60)[0] == "It was interrupted.\n"
    answered = led.asked("lead", least=1)[-1].asked.last_results[0]
    assert answered.is_error
    assert "Whether it had any effect is not known" in answered.text


def test_without_teamd_the_chat_says_so(project: Project) -> None:
    project.enlist("alice")
    refused = project.run("teamctl", "chat", "Hello?", "--no-start")
    assert refused.status == 3
    assert "start it with `teamd start`" in refused.complaint
    refused = project.run("teamctl", "chat", "--json")
    assert refused.status == 2


def test_the_compact_command_ignores_case_and_does_not_show_the_summary(
    led: Project,
) -> None:
    led.stage.act(
        "lead", lambda asked: say("All that was." if asked.last_text.endswith(DEMAND) else "Yes.")
    )
    shown = led.do("teamctl", "chat", stdin="Hi.\n/COMPACT\n").splitlines()
    assert shown == ["Yes.", "· the conversation was summed up", "Yes."]
    assert "All that was." in led.asked("lead", least=1)[-1].asked.heard


def test_after_a_refusal_the_lead_starts_a_new_conversation(led: Project) -> None:
    led.stage.play("lead", decline("I cannot"), say("Better."), say("Still there."))
    refused = led.run("teamctl", "chat", "Do something bad.")
    assert "refused" in refused.complaint
    assert "start over with `teamctl chat --fresh`" in led.do("teamctl", "inbox")
    led.wait_for("lead", "idle")
    assert led.do("teamctl", "chat", "Something else.", "--fresh") == "Better.\n"
    assert "Do something bad." not in led.asked("lead", least=1)[-1].asked.heard
    assert led.do("teamctl", "chat", "And now?") == "Still there.\n"
    assert "Something else." in led.asked("lead", least=1)[-1].asked.heard
    assert len(led.records("lead", "opened")) == 2


def test_only_the_first_prompt_of_a_fresh_chat_starts_a_new_conversation(led: Project) -> None:
    led.do("teamctl", "chat", "Before.")
    led.wait_for("lead", "idle")
    led.do("teamctl", "chat", "--fresh", stdin="One.\nTwo.\n")
    last = led.asked("lead", least=1)[-1].asked.heard
    assert ("Before." in last, "One." in last, "Two." in last) == (False, True, True)


def test_the_lead_keeps_a_model_chosen_at_the_chat_until_it_is_shut_down(led: Project) -> None:
    usual, other = "claude-sonnet-5-5", "claude-opus-5-5"

    def models() -> list[str]:
        return [one.body["model"] for one in led.asked("lead")]

    led.do("teamctl", "chat", "One.", "--model", other)
    led.do("teamctl", "chat", "Two.")
    led.do("teamctl", "shutdown", "lead")
    led.do("teamctl", "chat", "Three.")
    led.wait_for("lead", "idle")
    led.do("teamctl", "chat", "Four.", "--model", other)
    assert models() == [other, other, usual, other]
    assert len(led.records("lead", "opened")) == 1


def test_a_working_lead_does_not_start_a_new_conversation(led: Project) -> None:
    led.stage.play("lead", use(("bash", {"command": "echo > begun; sleep 1000"})))
    chat = led.begin("teamctl", "chat", "Take your time.")
    wait_until((led.folder / "begun").exists, what="the tool runs")
    for option in (("--fresh",), ("--model", "claude-opus-5-5")):
        refused = led.run("teamctl", "chat", "Anew.", *option, timeout_seconds=15)
        assert refused.status == 1
        assert "lead is working already" in refused.complaint
    assert "Anew." not in led.mail("lead")
    chat.send_signal(signal.SIGINT)
    assert chat.wait(30) == 130


def test_an_empty_prompt_costs_nothing(led: Project) -> None:
    for prompt in ("", " \n", "-"):
        refused = led.run("teamctl", "chat", prompt)
        assert refused.status == 1
        assert "a prompt is needed" in refused.complaint
    assert led.member("lead") == {}


_SETTINGS = "[model]\nmax_tokens = 1000\n[limits]\nteammate_tokens = {}\n"
_WAITS = "then `teamctl resume lead`; the message waits in its inbox until then"
_GRACE_SECONDS = 30
_NEW_SECONDS = 2.0


@pytest.fixture
def held(project: Project) -> Project:
    """A team whose lead reached its limit some time ago."""
    project.write("team.toml", _SETTINGS.format(20_000))
    project.stage.act("lead", lambda asked: use(("bash", {"command": f"true {len(asked.turns)}"})))
    project.start()
    ended = project.run("teamctl", "chat", "go")
    assert ended.status == 1
    assert "lead is paused: the next call does not fit" in ended.complaint
    project.wait_for("lead", "paused")
    project.stage.act("lead", lambda asked: say(f"Read {'again' in asked.heard}."))
    return project


@pytest.mark.slow
def test_a_prompt_fails_with_the_reason_and_is_read_once_the_lead_is_resumed(held: Project) -> None:
    refused = held.run("teamctl", "chat", "again", timeout_seconds=_GRACE_SECONDS)
    assert (refused.status, refused.stdout) == (1, "")
    assert refused.complaint.startswith(
        "teamctl: lead is paused: the next call does not fit into what is left of "
    )
    assert refused.complaint.endswith(_WAITS)
    assert "again" in held.mail("lead")
    held.write("team.toml", _SETTINGS.format(900_000))
    held.do("teamctl", "resume", "lead")
    wait_until(lambda: not held.mail("lead"), what="the lead has read it")
    assert held.do("teamctl", "chat", "once more") == "Read True.\n"


@pytest.mark.slow
def test_a_pipe_fails_with_the_reason_and_leaves_the_rest_unread(held: Project) -> None:
    refused = held.run("teamctl", "chat", stdin="one\ntwo\n", timeout_seconds=_GRACE_SECONDS)
    assert refused.status == 1
    assert refused.complaint.endswith(_WAITS)
    assert "one" in held.mail("lead")
    assert "two" not in held.mail("lead")


@pytest.mark.slow
def test_mail_ends_any_other_pause(project: Project) -> None:
    """The person's words restart a failed lead, whatever its status in the roster."""

    def settled() -> object:
        return time.time() - project.member("lead")["since"] > _NEW_SECONDS

    project.start()
    project.server.faults.when(lambda asked: "first" in asked.last_text, Status(400))
    failed = project.run("teamctl", "chat", "first")
    assert failed.complaint.startswith("teamctl: lead is paused: ")
    assert failed.complaint.endswith("start over with `teamctl chat --fresh`")
    project.wait_for("lead", "paused")
    wait_until(settled, what="its process is not new any more")
    project.stage.play("lead", say("Now it works."))
    assert project.do("teamctl", "chat", "second") == "Now it works.\n"
