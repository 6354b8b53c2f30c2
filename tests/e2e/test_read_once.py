"""The person reads each message once, however often a killed sender sent it."""

from __future__ import annotations

import json

import pytest

from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered
from tests.e2e.harness import Project


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


def test_the_same_id_with_other_words_is_another_message(project: Project) -> None:
    """A foreign program may reuse an id; no message may be lost."""
    project.enlist("bob")
    box = Mailbox(project.paths, "lead")
    for words in ("One.", "Two."):
        box.put(Message(id="1", sender="bob", to="lead", content=words))
        assert words in project.do("teamctl", "inbox")


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
def test_mail_kept_by_a_killed_reader_hides_no_later_mail(
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
