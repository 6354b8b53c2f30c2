"""`teamctl inbox`: reading, following, interruptions, and two readers at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import Message
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered
from tests.children import holding
from tests.e2e.harness import Project
from tests.shells import links
from tests.waiting import wait_until

LONG = "a line of many\n" * 30_000  # more than a pipe holds
WAY_OUT = "; end it, or look with --peek"


@pytest.fixture
def ann(project: Project) -> Iterator[Project]:
    """A team with ann, and without processes."""
    project.enlist("ann")
    yield project
    assert project.survivors() == {}


def put(project: Project, to: str, line: str) -> None:
    """Append a line to an inbox, as the README allows any program to do."""
    inbox = project.paths.inbox(to)
    project.do("flock", str(inbox), "-c", f"echo '{line}' >> {inbox}")


@pytest.mark.parametrize(("to", "options"), [("ann", ["ann"]), ("lead", ["--peek"])])
def test_following_shows_a_line_without_an_id_once_even_if_mail_is_not_taken(
    ann: Project, to: str, options: list[str]
) -> None:
    seen = ann.root / "seen"
    with seen.open("w", encoding="utf-8") as output:
        follower = ann.begin("teamctl", "inbox", *options, "--follow", stdout=output)
    for number in range(3):
        put(ann, to, f'{{"from": "cron", "content": "tick {number}"}}')
        wait_until(lambda: f"tick {number}" in seen.read_text("utf-8"), what="it is shown")  # noqa: B023 -- called at once
    follower.send_signal(signal.SIGINT)
    assert follower.wait(timeout=20) == 130
    shown = seen.read_text("utf-8")
    assert [shown.count(f"tick {number}") for number in range(3)] == [1, 1, 1]


def test_following_continues_when_an_agent_becomes_the_lead(ann: Project) -> None:
    """From then on, the person's mail goes to another file."""
    seen = ann.root / "seen"
    with seen.open("w", encoding="utf-8") as output:
        follower = ann.begin("teamctl", "inbox", "--follow", stdout=output)
    ann.do("teamctl", "send", "lead", "as lead", "--from", "ann")
    wait_until(lambda: "as lead" in seen.read_text("utf-8"), what="it is shown")
    ann.enlist("ann", "lead")
    ann.do("teamctl", "send", "user", "as user", "--from", "ann")
    wait_until(lambda: "as user" in seen.read_text("utf-8"), what="it is shown")
    follower.send_signal(signal.SIGINT)
    assert follower.wait(timeout=20) == 130


def stuck(project: Project) -> subprocess.Popen[str]:
    """Start a reader that is blocked while it prints a long message."""
    project.do("teamctl", "send", "lead", "-", "--from", "ann", stdin=LONG)
    reader = project.begin("teamctl", "inbox", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert os.read(reader.stdout.fileno(), 1)  # `communicate` would miss bytes in a buffer
    return reader


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_mail_is_shown_again_after_an_interrupted_display(
    ann: Project, number: signal.Signals
) -> None:
    """A message that was not printed in full counts as unread."""
    with stuck(ann) as reader:
        os.kill(reader.pid, number)
        reader.communicate(timeout=20)
        assert reader.returncode == (130 if number is signal.SIGINT else -number)
    assert ann.records("user") == []
    assert ann.do("teamctl", "inbox").count("a line of many") == 30_000
    assert ann.do("teamctl", "inbox") == "no new mail\n"


@pytest.mark.parametrize("size", [1, 30_000])
def test_mail_is_not_taken_when_its_reader_has_gone(ann: Project, size: int) -> None:
    """`teamctl inbox | true`, however short the mail is."""
    ann.do("teamctl", "send", "lead", "-", "--from", "ann", stdin="a line of many\n" * size)
    reading, writing = os.pipe()
    os.close(reading)
    reader = ann.begin("teamctl", "inbox", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, errors = reader.communicate(timeout=20)
    assert errors == ""
    assert ann.do("teamctl", "inbox").count("a line of many") == size
    assert ann.do("teamctl", "inbox") == "no new mail\n"


def test_two_simultaneous_readers_do_not_show_the_same_mail(ann: Project) -> None:
    """The second waits for the first, and finds no mail left."""
    with stuck(ann) as first:
        second = ann.begin("teamctl", "inbox", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: ann.paths.reading in links(second.pid).values(), what="the second waits")
        rest, _ = first.communicate(timeout=20)
        shown, errors = second.communicate(timeout=20)
    assert rest.count("a line of many") == 30_000
    assert (shown, errors) == ("no new mail\n", "")
    assert len(ann.records("user", "mail")) == 1


@pytest.mark.slow
def test_a_stopped_reader_is_reported_to_the_next_reader(ann: Project) -> None:
    ann.do("teamctl", "send", "lead", "Ready.", "--from", "ann")
    ann.paths.reading.touch()
    with holding(ann.paths.reading):
        refused = ann.run("teamctl", "inbox")
        assert "Ready." in ann.do("teamctl", "inbox", "--peek")
    assert refused.status == 1
    assert "another `teamctl inbox` is showing your mail and has not been" in refused.complaint
    assert refused.complaint.endswith(WAY_OUT)
    assert "Ready." in ann.do("teamctl", "inbox")


def test_a_request_is_shown_with_the_command_that_answers_it_or_with_its_answer(
    ann: Project,
) -> None:
    """The request's text names the commands that answer it, so they must work."""
    approvals = Approvals(ann.paths, MailRouter(ann.paths, durable=False, max_bytes=10_000))
    for number, kind in enumerate([Kind.PLAN, Kind.PERMISSION, Kind.PERMISSION, Kind.PERMISSION]):
        late = time.time() - 1 if number == 2 else None
        said: dict[str, Any] = {"content": f"No {number}.", "asked": time.time()}
        approvals.ask(
            Approval(id=f"abc{number}", type=kind, asker="ann", to="lead", deadline=late, **said)
        )
    ann.do("teamctl", "approve", "abc0")
    ann.do("teamctl", "reject", "abc1", "--reason", "Not\nyet.")
    for options in (["--peek"], []):
        lines = ann.do("teamctl", "inbox", *options).splitlines()
        for line, words in zip(lines, ("abc0: was approved", "abc1: was rejected"), strict=False):
            assert re.search(rf"{words} already by you \d+s ago(: Not yet\.)?$", line)
        assert lines[2].endswith("abc2: is no longer open: nobody waits for its answer")
        assert lines[3].endswith("ann [permission_request] abc3")
        answers = "`teamctl approve abc3` approves it, `teamctl reject abc3 --reason …` rejects it"
        assert lines[4:] == [f"  {answers}", "  No 3."]


@pytest.mark.parametrize(("to", "options"), [("ann", ["ann"]), ("lead", [])])
def test_following_as_json_prints_a_message_per_line(
    ann: Project, to: str, options: list[str]
) -> None:
    """Even if it contains newlines; the person's own mail is taken once it is shown."""
    ann.do("teamctl", "send", to, "one\ntwo", "--from", "bob", "--id", "1")
    argv = ("teamctl", "inbox", *options, "-f", "--json")
    with ann.begin(*argv, stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        ann.do("teamctl", "send", to, "three", "--from", "bob", "--id", "2")
        second = json.loads(following.stdout.readline())
        wait_until(lambda: bool(ann.mail(to)) is (to == "ann"), what="it is taken, if it is yours")
        following.kill()
    assert [first["content"], second["content"]] == ["one\ntwo", "three"]
    assert (first["from"], second["id"]) == ("bob", "2")


def test_a_message_resent_by_a_restarted_teammate_is_read_once(project: Project) -> None:
    """It was killed after sending and before recording that; the id is the same."""
    project.enlist("bob")
    message = Message(id="call-1", sender="bob", to="lead", content="Done.")
    box = Mailbox(project.paths, "lead")
    box.put(message, message)
    assert project.do("teamctl", "inbox").count("Done.") == 1
    box.put(message)
    assert json.loads(project.do("teamctl", "inbox", "--json")) == {"messages": []}
    assert project.do("teamctl", "inbox") == "no new mail\n"
    assert len(project.records("user", "mail")) == 1


def test_mail_held_by_a_killed_reader_is_read_together_with_the_rest(project: Project) -> None:
    """It comes in a separate batch, which a person could take for all mail."""
    project.enlist("bob")
    box = Mailbox(project.paths, "lead")
    box.put(Message(sender="bob", to="lead", content="One."))
    box.take()
    box.put(Message(sender="bob", to="lead", content="Two."))
    shown = project.do("teamctl", "inbox")
    assert "One." in shown
    assert "Two." in shown
    assert project.do("teamctl", "inbox") == "no new mail\n"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_mail_kept_by_a_killed_reader_does_not_hide_later_mail(
    project: Project, options: tuple[str, ...]
) -> None:
    """The reader was killed after it showed a batch, so that batch has no new mail."""
    project.enlist("bob")
    box = Mailbox(project.paths, "lead")
    box.put(Message(sender="bob", to="lead", content="One."))
    kept = Transcript(project.paths.transcript("user"))
    kept.append(Delivered(messages=box.take().messages))
    box.put(Message(sender="bob", to="lead", content="Two."))
    shown = project.do("teamctl", "inbox", *options)
    assert "One." not in shown
    assert "Two." in shown
    assert not box.waiting()


def test_json_is_one_document_and_the_next_call_prints_the_rest(project: Project) -> None:
    project.enlist("bob")
    box = Mailbox(project.paths, "lead")
    box.put(Message(sender="bob", to="lead", content="One."))
    box.take()
    box.put(Message(sender="bob", to="lead", content="Two."))
    for words in ("One.", "Two."):
        (message,) = json.loads(project.do("teamctl", "inbox", "--json"))["messages"]
        assert message["content"] == words
