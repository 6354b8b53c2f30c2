"""A lead that is paused at a limit reads nothing: the chat says so, and does not wait."""

from __future__ import annotations

import time

import pytest

from tests.e2e.harness import Project
from tests.e2e.terminal import Terminal
from tests.strict.faults import Status
from tests.strict.replies import say, use
from tests.waiting import wait_until

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
def test_the_reason_is_shown_at_a_terminal_and_the_next_line_is_read(held: Project) -> None:
    terminal = Terminal(held)

    def said() -> int:
        """Count how often the reason is shown; a long line is wrapped between words."""
        return " ".join(terminal.shown.split()).count(_WAITS)

    terminal.sees("\n>")
    terminal.type(b"one\r")
    wait_until(lambda: said() == 1, what="it is said of the first")
    terminal.asks_after("until")
    terminal.type(b"two\r")
    wait_until(lambda: said() == 2, what="it is said of both")
    assert "one" in held.mail("lead")
    assert "two" in held.mail("lead")
    terminal.type(b"/quit\r")
    assert terminal.process.wait(20) == 0
    terminal.close()


@pytest.mark.slow
def test_a_spawn_that_waits_is_refused_at_a_limit(held: Project) -> None:
    """It checks before it sends anything: mail in the inbox would be another task."""
    held.stage.act("al", lambda asked: use(("bash", {"command": f"true {len(asked.turns)}"})))
    ended = held.run("teamctl", "spawn", "al", "coder", "go", "--wait")
    assert "al is paused: the next call does not fit" in ended.complaint
    held.wait_for("al", "paused")
    again = held.run("teamctl", "spawn", "al", "coder", "more", "--wait")
    assert (again.status, held.mail("al")) == (1, "")
    assert "al stays paused: the next call does not fit" in again.complaint


@pytest.mark.slow
def test_mail_ends_any_other_pause(project: Project) -> None:
    """The person's words restart a failed lead, whatever its status in the roster."""

    def settled() -> object:
        return time.time() - project.member("lead")["since"] > _NEW_SECONDS

    project.start()
    project.server.faults.when(lambda asked: "first" in asked.last_text, Status(400))
    failed = project.run("teamctl", "chat", "first")
    assert failed.complaint.startswith("teamctl: lead is paused: ")
    assert failed.complaint.endswith("begin anew with `teamctl chat --fresh`")
    project.wait_for("lead", "paused")
    wait_until(settled, what="its process is not new any more")
    project.stage.play("lead", say("Now it works."))
    assert project.do("teamctl", "chat", "second") == "Now it works.\n"
