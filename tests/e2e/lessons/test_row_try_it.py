"""The last row of the lessons' table: a reader's first steps."""

from __future__ import annotations

from functools import partial

from tests.e2e.harness import Project
from tests.e2e.stories import told
from tests.strict.replies import say, use
from tests.waiting import wait_until


def test_try_it(project: Project) -> None:
    """The example prompts of the lessons, given to a leading agent and by a person."""
    spawn = "spawn_teammate"
    alice = {"name": "alice", "role": "coder", "prompt": "Send bob a message."}
    bob = {"name": "bob", "role": "tester", "prompt": "Wait for mail."}
    lines = (
        (r"Spawn alice \(coder\)", use((spawn, bob), (spawn, alice))),
        ("Broadcast 'status", use(("broadcast", {"content": "status update: phase 1 complete"}))),
        ("Check the lead inbox", use(("read_inbox", {}))),
        ("Alice reports", say("Alice has reported.")),
    )
    project.stage.act("lead", told(*lines))
    project.stage.act(
        "alice",
        told(
            ("Send bob", use(("send_message", {"to": "bob", "content": "Hello, bob!"}))),
            ("phase 1", use(("send_message", {"to": "lead", "content": "Alice reports."}))),
        ),
    )
    project.start()
    chat = ("teamctl", "chat")
    project.do(*chat, "Spawn alice (coder) and bob (tester). Have alice send bob a message.")
    wait_until(lambda: _has_heard(project, "bob", "Hello, bob!"), what="bob has it")
    project.do(*chat, "Broadcast 'status update: phase 1 complete' to all teammates")
    words = 'type="broadcast">\nstatus update: phase 1 complete'
    for name in ("alice", "bob"):
        wait_until(partial(_has_heard, project, name, words), what="the broadcast")
    project.do(*chat, "Check the lead inbox for any messages")
    wait_until(lambda: _has_heard(project, "lead", "Alice reports."), what="the lead has it")
    shown = project.do(*chat, stdin="/team\n/inbox\n/quit\n")
    rows = [line.split()[:2] for line in shown.splitlines()]
    for row in (["lead", "lead"], ["alice", "coder"], ["bob", "tester"]):
        assert row in rows
    assert "no new mail" in shown


def _has_heard(project: Project, name: str, words: str) -> bool:
    return any(words in one.asked.heard for one in project.asked(name))
