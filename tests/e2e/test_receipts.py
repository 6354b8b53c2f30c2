"""A sender can wait until its message is in a conversation, and trace it later."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, Final

from teamd.mail.mailbox import Mailbox
from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until

PIPES: Final[dict[str, Any]] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
WAY_KEYS: Final = {
    "id", "type", "from", "to", "sent", "stage", "position", "taken", "delivered", "file",
}  # fmt: skip


def _way(project: Project, wanted: str) -> dict[str, Any]:
    traced = json.loads(project.do("teamctl", "trace", wanted, "--json"))
    assert traced.keys() == {"id", "receivers"}
    (way,) = traced["receivers"]
    assert way.keys() == WAY_KEYS
    return dict(way)


def test_send_wait_returns_once_the_message_is_in_the_conversation(team: Project) -> None:
    team.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    said = team.do("teamctl", "send", "ANN", "Are you there?", "--id", "call-1", "--wait")
    mail = [m for record in team.records("ann", "mail") for m in record["messages"]]
    assert said == "sent to ann\ndelivered to ann\n"
    assert [m["content"] for m in mail] == ["Go.", "Are you there?"]
    # A retry after an unknown outcome: the message is already in the conversation.
    assert team.do("teamctl", "send", "ann", "Are you there?", "--id", "call-1", "--wait") == said


def test_send_wait_reaches_a_teammate_in_the_middle_of_a_turn(team: Project) -> None:
    """It returns with the next model call, not at the end of the turn."""
    command = "touch begun; until [ -e go-on ]; do sleep 0.02; done"
    team.stage.play("mia", use(("bash", {"command": command})), say("Done."))
    team.do("teamctl", "spawn", "mia", "coder", "Build it.")
    wait_until((team.folder / "begun").exists, what="the command runs")
    late = team.run("teamctl", "send", "mia", "One.", "--id", "mia-1", "--wait", "--timeout", "0.3")
    assert late.status == 4
    assert late.stdout == "sent to mia\n"
    assert late.complaint == (
        "teamctl: mia has not taken it within 0.3 s; the message is safe and will be delivered: "
        "`teamctl trace mia-1` shows where it is"
    )
    assert (_way(team, "mia-1")["stage"], _way(team, "mia-1")["position"]) == ("queued", 1)
    with team.begin("teamctl", "send", "mia", "Two.", "--wait", **PIPES) as waiting:
        wait_until(lambda: "Two." in team.mail("mia"))
        assert waiting.poll() is None
        team.write("go-on", "")
        assert waiting.communicate(timeout=30) == ("sent to mia\ndelivered to mia\n", "")
        assert waiting.returncode == 0
    assert _way(team, "mia-1")["stage"] == "delivered"


def test_a_send_without_teamd_says_so_at_once_and_waits(project: Project) -> None:
    project.enlist("ann")
    late = project.run("teamctl", "send", "ann", "One.", "--wait", "--timeout", "0.1")
    assert late.status == 4
    nobody, over = late.stderr.splitlines()
    assert nobody == (
        f"warning: no teamd runs for {project.paths.root}; the message is delivered once "
        "`teamd start` has started it"
    )
    assert over.startswith("teamctl: ann has not taken it within 0.1 s; the message is safe")
    with project.begin("teamctl", "send", "ann", "Two.", "--wait", **PIPES) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == f"{nobody}\n"
        assert waiting.poll() is None
        project.start()
        assert waiting.communicate(timeout=30)[0] == "sent to ann\ndelivered to ann\n"
    project.wait_for("ann", "idle")


def test_mail_to_the_person_counts_as_delivered_when_it_was_read(team: Project) -> None:
    argv = ("teamctl", "send", "lead", "Done.", "--from", "ci", "--id", "ci-1", "--wait", "--json")
    with team.begin(*argv, **PIPES) as waiting:
        wait_until(lambda: "Done." in team.mail("lead"))
        assert waiting.poll() is None
        assert "Done." in team.do("teamctl", "inbox")
        said, errors = waiting.communicate(timeout=30)
    assert (waiting.returncode, errors) == (0, "")
    assert json.loads(said) == {"id": "ci-1", "to": "lead", "delivered": True}
    assert "ci-1 to lead: sent " in team.do("teamctl", "trace", "ci-1")
    assert "; shown to you 2" in team.do("teamctl", "trace", "ci-1")


def test_trace_shows_the_path_of_a_message_from_send_to_conversation(team: Project) -> None:
    team.do("teamctl", "spawn", "tom", "coder", "Go.", "--wait")
    sent = json.loads(team.do("teamctl", "send", "tom", "Hi.", "--json", "--wait"))
    assert (sent["to"], sent["delivered"]) == ("tom", True)
    way = _way(team, sent["id"])
    assert (way["from"], way["to"], way["stage"], way["position"]) == (
        "lead", "tom", "delivered", None,
    )  # fmt: skip
    assert way["sent"] <= way["taken"] <= way["delivered"]
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"

    told = team.do("teamctl", "trace", sent["id"][:-4])
    assert re.fullmatch(
        f"{sent['id']} to tom: sent {moment} by lead; taken {moment}; "
        f"in the conversation {moment}\n",
        told,
    )


OTHER: Final = (
    "teamctl: {} was sent another text with the id '1'; repeat that text, or use another --id "
    "for this one"
)


def test_an_id_reused_for_another_text_is_refused_wherever_the_first_message_is(
    project: Project,
) -> None:
    """Queued, shown, or kept in a conversation; the same text is still sent, and counts once."""
    project.enlist("ann")
    send = ("teamctl", "send", "lead", "Ready.", "--from", "ann", "--id", "1")
    for step in ("queued", "read"):
        project.do(*send)
        refused = project.run(*send[:3], "Not ready.", *send[4:])
        assert (refused.status, refused.stdout) == (1, ""), step
        assert refused.complaint == OTHER.format("lead")
        project.do("teamctl", "inbox")
    assert [m["content"] for r in project.records("user", "mail") for m in r["messages"]] == [
        "Ready."
    ]
    project.do(*send[:3], "Not ready.", "--from", "bob", "--id", "1")
    project.do(*send[:2], "ann", "Not ready.", "--from", "ann", "--id", "1")


def test_an_id_is_also_compared_with_mail_that_its_reader_has_taken(project: Project) -> None:
    project.enlist("ann")
    project.do("teamctl", "send", "ann", "Ready.", "--id", "1")
    assert Mailbox(project.paths, "ann").take().messages
    project.do("teamctl", "send", "ann", "Ready.", "--id", "1")
    refused = project.run("teamctl", "send", "ann", "Not ready.", "--id", "1")
    assert (refused.status, refused.complaint) == (1, OTHER.format("ann"))


def test_a_rejected_message_can_be_reworded_and_sent_with_the_same_id(project: Project) -> None:
    project.enlist("ann")
    rejected = {"id": "1", "from": "lead", "content": "Crash."}
    project.paths.rejected("ann").write_text(f"{json.dumps(rejected)}\n")
    project.do("teamctl", "send", "ann", "Do not crash.", "--id", "1")


def test_lowering_a_limit_does_not_lose_mail_that_was_sent_before(project: Project) -> None:
    """Its sending was confirmed; later mail is refused when it is sent."""
    project.enlist("ann")
    for receiver in ("ann", "lead"):
        project.do("teamctl", "send", receiver, "-", stdin="x" * 200_000)
    project.write("team.toml", "[mail]\nmax_message_bytes = 2000\n")
    assert "over the limit of 2000" in project.run("teamctl", "send", "ann", "y" * 3000).complaint
    project.start()
    project.do("teamctl", "send", "ann", "Go.", "--wait")
    mail = [m for record in project.records("ann", "mail") for m in record["messages"]]
    assert [m["content"] for m in mail] == ["x" * 200_000, "Go."]
    assert "x" * 200_000 in project.do("teamctl", "inbox", "--peek")
    assert "x" * 200_000 in project.do("teamctl", "inbox")
    assert not project.paths.rejected("lead").exists()
