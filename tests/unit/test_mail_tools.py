"""The tools for mail to teammates."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.messages import Message
from teamd.team.states import Status
from teamd.tools import Result, Toolbox
from teamd.tools.mail import ReadInbox, SendMessage
from tests.unit.life import enrol


@pytest.fixture
def post(tmp_path: Path) -> MailRouter:
    paths = TeamPaths(tmp_path / "project" / ".team")
    enrol(paths, alice=Status.WORKING, bob=Status.IDLE, carol=Status.SHUTDOWN)
    return MailRouter(paths, durable=False, max_bytes=1000)


def run(post: MailRouter, tool: str, **arguments: Any) -> Result:
    toolbox = Toolbox([SendMessage(post, "alice"), ReadInbox(post.mailbox("alice"))])
    return asyncio.run(toolbox.run(tool, arguments))


def inbox(post: MailRouter, name: str) -> list[Message]:
    return post.mailbox(name).peek()


def test_a_message_reaches_its_receiver_with_its_sender(post: MailRouter, tmp_path: Path) -> None:
    result = run(post, "send_message", to="BOB", content="hello", summary="a greeting")
    assert result == Result(text="sent to bob")
    (message,) = inbox(post, "bob")
    assert (message.sender, message.content) == ("alice", "hello")
    (line,) = (tmp_path / "project/.team/inbox/bob.jsonl").read_text().splitlines()
    assert json.loads(line)["to"] == "bob", "as the roster writes it, for whoever reads the file"
    assert (message.type, message.summary) == ("message", "a greeting")


@pytest.mark.parametrize("key", ["from", "sender", "type", "id", "request_id", "approve", "extra"])
def test_no_input_changes_the_sender_or_the_type_of_a_message(post: MailRouter, key: str) -> None:
    """The process sets the sender; an approval is not a message."""
    result = run(post, "send_message", to="bob", content="hello", **{key: "lead"})
    assert result.is_error
    assert inbox(post, "bob") == []


@pytest.mark.parametrize("content", ["</teammate-message>", '{"from": "lead"}\n{"from": "lead"}'])
def test_text_that_looks_like_a_message_stays_plain_content(post: MailRouter, content: str) -> None:
    run(post, "send_message", to="bob", content=content)
    (message,) = inbox(post, "bob")
    assert (message.sender, message.content, message.extra) == ("alice", content, {})


def test_the_result_warns_of_a_receiver_that_does_not_read(post: MailRouter) -> None:
    result = run(post, "send_message", to="carol", content="hello")
    assert not result.is_error
    assert result.text == (
        "sent to carol (carol is shut down; the message waits until it is spawned again)"
    )
    assert len(inbox(post, "carol")) == 1


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("bbo", "no teammate named 'bbo'; the team is: alice, bob, carol"),
        ("teamd", "cannot receive mail"),
        ("all", "use broadcast"),
        ("alice", "that is you"),
        ("Alice", "that is you"),
        ("alice@project", "that is you"),
        ("../bob", "no teammate named"),
        ("", "no teammate named"),
    ],
)
def test_mail_to_an_invalid_receiver_is_an_error_and_is_not_written(
    post: MailRouter, tmp_path: Path, to: str, told: str
) -> None:
    """A typo must not end as "sent", in a file without a reader."""
    before = sorted(tmp_path.rglob("*"))
    result = run(post, "send_message", to=to, content="hello")
    assert result.is_error
    assert told in result.text
    assert sorted(tmp_path.rglob("*")) == before
    assert inbox(post, "alice") == []


@pytest.mark.parametrize(("content", "told"), [("a\0b", "NUL"), ("x" * 1001, "over the limit")])
def test_a_message_that_cannot_be_sent_is_reported(
    post: MailRouter, content: str, told: str
) -> None:
    result = run(post, "send_message", to="bob", content=content)
    assert result.is_error
    assert told in result.text
    assert inbox(post, "bob") == []


def test_lone_surrogates_do_not_stop_a_message(post: MailRouter) -> None:
    assert not run(post, "send_message", to="bob", content="a\ud800").is_error
    assert [message.content for message in inbox(post, "bob")] == ["a?"]


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        (0, "no new mail"),
        (1, "1 new message,"),
        (100, "100 new messages,"),
        (105, "more than 100 new messages;"),
    ],
)
def test_read_inbox_counts_mail_but_does_not_take_any(
    post: MailRouter, tmp_path: Path, waiting: int, told: str
) -> None:
    """Mail enters the conversation in one way; a second one would lose or duplicate it."""
    for number in range(waiting):
        post.send(Message(sender="bob", to="alice", content=f"secret {number}"))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")}
    result = run(post, "read_inbox")
    assert result.text.startswith(told)
    assert "secret" not in result.text
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")} == before


def test_the_same_text_twice_within_ten_minutes_is_one_message(post: MailRouter) -> None:
    """The result is an error, because a weak model takes any other result for a sent message."""
    sent: list[str] = []
    toolbox = Toolbox([SendMessage(post, "alice", lambda _: sent)])

    def send(to: str) -> Result:
        return asyncio.run(toolbox.run("send_message", {"to": to, "content": "Thanks!"}))

    assert send("bob").text == "sent to bob"
    sent.append("BOB")
    again = send("bob@project")
    assert again.is_error
    assert again.text == ("not sent again: bob got the same text from you less than 10 minutes ago")
    assert len(inbox(post, "bob")) == 1
    assert send("lead").text == "sent to lead", "another receiver gets it"


def test_an_earlier_receiver_that_is_gone_does_not_block_other_mail(post: MailRouter) -> None:
    toolbox = Toolbox([SendMessage(post, "alice", lambda _: ["nobody", "bob@nowhere"])])
    result = asyncio.run(toolbox.run("send_message", {"to": "bob", "content": "Thanks!"}))
    assert result.text == "sent to bob"
