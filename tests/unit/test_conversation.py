"""The conversation turns records into messages that the service accepts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from teamd.agent.conversation.conversation import Conversation
from teamd.messages import Message
from teamd.tools import Result
from teamd.transcript.file import Transcript
from teamd.transcript.records import INTERRUPTED, LIMIT, PAUSED, REPEATED, Opened
from tests.strict.replies import Answer, decline, say, use
from tests.unit.life import SYSTEM, as_record, replied

DO = ("do", {"word": "x"})


def mail(*contents: str) -> list[Message]:
    return [Message(sender="lead", to="alice", content=content) for content in contents]


def written(path: Path) -> Conversation:
    return Conversation(Transcript(path, durable=False))


@pytest.fixture
def talk(tmp_path: Path) -> Conversation:
    conversation = written(tmp_path / "alice.jsonl")
    conversation.open(Opened(system=SYSTEM))
    return conversation


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def test_results_come_before_text_in_a_message(talk: Conversation) -> None:
    """The service refuses a call whose result does not directly follow it."""
    talk.deliver(mail("work"))
    talk.add_reply(replied(use(DO, DO)))
    first, second = talk.unanswered
    talk.add_result(first, Result(text="one"))
    talk.deliver(mail("meanwhile"))
    talk.add_result(second, Result(text="two", is_error=True))
    assert talk.unanswered == []
    assert kinds(talk.context.messages()[-1]) == ["tool_result", "tool_result", "text"]
    assert talk.context.messages()[-1]["content"][1] == {
        "type": "tool_result",
        "tool_use_id": second["id"],
        "content": [{"type": "text", "text": "two"}],
        "is_error": True,
    }


def test_thinking_is_returned_unchanged(talk: Conversation) -> None:
    talk.deliver(mail("work"))
    reply = replied(say("Let me see", thinking="", redacted=True, calls=[DO]))
    talk.add_reply(reply)
    assert talk.context.messages()[-1]["content"] == reply.content


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (say(" \n", calls=[DO]), ["tool_use"]),
        (say("", thinking="Hm", stop_reason="max_tokens"), []),
        (say(" ", thinking="Hm", redacted=True), []),
        (say("", thinking="Hm", calls=[DO]), ["thinking", "tool_use"]),
        (decline("I can"), []),
        (Answer(stop_reason="refusal", calls=(DO,)), []),
        (say(), []),
    ],
)
def test_blocks_that_the_service_does_not_accept_back_are_left_out(
    talk: Conversation, answer: Answer, kept: list[str]
) -> None:
    talk.deliver(mail("work"))
    talk.add_reply(replied(answer))
    _, *answers = talk.context.messages()
    assert [kinds(message) for message in answers] == ([kept] if kept else [])
    assert len(talk.unanswered) == kept.count("tool_use")


@pytest.mark.parametrize(
    ("change", "owes"),
    [
        (lambda _: None, True),
        (lambda talk: talk.add_reply(replied(say("Done."))), False),
        (lambda talk: talk.add_reply(replied(say("Wait", stop_reason="pause_turn"))), True),
        (lambda talk: talk.add_reply(replied(decline())), False),
        (lambda talk: talk.end_turn("limit", ""), False),
        (lambda talk: talk.end_turn(PAUSED, "no key"), True),
    ],
)
def test_a_conversation_knows_whether_it_owes_a_reply(
    talk: Conversation, change: Callable[[Conversation], None], owes: bool
) -> None:
    talk.deliver(mail("work"))
    change(talk)
    assert talk.owes_reply is owes


@pytest.mark.parametrize(
    ("outcome", "keeps"),
    [(PAUSED, True), (LIMIT, True), (REPEATED, True), (INTERRUPTED, False), ("end_turn", False)],
)
def test_a_summary_repeats_mail_until_the_work_on_it_has_ended(
    talk: Conversation, outcome: str, keeps: bool
) -> None:
    """A turn that was stopped is not the end of the work: mail lets it go on."""
    talk.deliver(mail("work"))
    talk.add_reply(replied(say("At it.")))
    talk.end_turn(outcome, "")
    assert bool(talk.open_items) is keeps


def test_reopening_drops_the_messages_and_keeps_the_known_ids(
    talk: Conversation, tmp_path: Path
) -> None:
    old = mail("old")
    talk.deliver(old)
    talk.add_reply(replied(use(DO)))
    talk.open(Opened(system="You are 'alice', role: writer."))
    for conversation in (talk, written(tmp_path / "alice.jsonl")):
        assert conversation.context.messages() == []
        assert conversation.unanswered == []
        assert not conversation.owes_reply
        assert conversation.opened.system == "You are 'alice', role: writer."
        assert conversation.has_seen(old[0])
        assert conversation.turns == 1


def test_turns_and_tokens_are_counted_over_the_whole_transcript(
    talk: Conversation, tmp_path: Path
) -> None:
    """All input tokens count, cached or not."""
    talk.deliver(mail("work"))
    talk.add_reply(replied(say("One")))
    talk.add_reply(replied(decline()))
    for conversation in (talk, written(tmp_path / "alice.jsonl")):
        counted = (conversation.turns, conversation.input_tokens, conversation.output_tokens)
        assert counted == (2, 120, 8)


def test_records_of_a_later_version_are_skipped(tmp_path: Path, talk: Conversation) -> None:
    talk.deliver(mail("work"))
    before = talk.context.messages()
    Transcript(tmp_path / "alice.jsonl").append(
        as_record({"record": "compacted"}), as_record({"no": "record"})
    )
    assert written(tmp_path / "alice.jsonl").context.messages() == before


def test_lone_surrogates_are_replaced_for_writer_and_reader(
    talk: Conversation, tmp_path: Path
) -> None:
    """No request can carry a lone surrogate, but a folder's name or a note may contain one."""
    talk.open(Opened(system="You are 'alice', role: tester of \udcff."))
    talk.add_note("see \ud800")
    again = written(tmp_path / "alice.jsonl")
    assert talk.context.messages() == again.context.messages()
    assert talk.opened.system == again.opened.system == "You are 'alice', role: tester of ?."
    json.dumps(talk.context.messages(), ensure_ascii=False).encode()


def test_the_secret_of_a_conversation_appears_in_no_id(tmp_path: Path) -> None:
    """A reader of the ids of its mail must not be able to predict the id of its next request."""
    path = tmp_path / "alice.jsonl"
    talk = written(path)
    talk.open(Opened(system=SYSTEM))
    talk.add_reply(replied(use(DO)))
    secret = talk.opened.secret
    assert len(secret) == 32
    assert secret not in talk.key_of(talk.unanswered[0])
    assert written(path).opened.secret == secret, "the next process makes the same ids"
    talk.open(Opened(system=SYSTEM))
    assert talk.opened.secret != secret


@pytest.mark.parametrize("durable", [True, False])
def test_a_call_is_started_once(talk: Conversation, tmp_path: Path, *, durable: bool) -> None:
    """It is started again only after its approval arrives, or by the next process."""
    talk.deliver(mail("work"))
    talk.add_reply(replied(use(DO)))
    (call,) = talk.unanswered
    talk.begin_call(call, durable=False)
    talk.begin_call(call, durable=durable)
    again = written(tmp_path / "alice.jsonl")
    again.begin_call(call, durable=durable)
    assert (tmp_path / "alice.jsonl").read_bytes().count(b'"started"') == 1
    assert again.begun == {call["id"]}
