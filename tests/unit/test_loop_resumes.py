"""A teammate that was killed in the middle of a step resumes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import CUT_OFF_REPLY, INTERRUPTED_CALL
from teamd.settings.known_tools import KnownTool
from teamd.tools import Result
from teamd.transcript.records import Opened
from tests.strict.replies import Answer, say, use
from tests.unit.life import SYSTEM, Do, Life, Nothing, replied


class Look(Do):
    """A tool whose calls may be run again; it records the keys of its calls."""

    facts: ClassVar[KnownTool] = KnownTool(acts=True, repeatable=True)

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    async def call(self, arguments: Nothing, key: str) -> str:
        self.keys.append(key)
        return await super().call(arguments, key)


def killed(life: Life, reply: Answer) -> Conversation:
    """Return the conversation of a process killed right after this reply was recorded."""
    life.send("work")
    conversation = life.conversation()
    conversation.open(Opened(system=SYSTEM))
    batch = life.mailbox.take()
    conversation.deliver(batch.messages)
    life.mailbox.done(batch)
    conversation.add_reply(replied(reply))
    return conversation


def results(life: Life) -> list[str]:
    blocks = [block for block in life.model.last(0) if block["type"] == "tool_result"]
    return [block["content"][0]["text"] for block in blocks]


TWO = use(("do", {"word": "a"}), ("do", {"word": "b"}))


def test_a_call_that_never_started_runs(tmp_path: Path) -> None:
    life = Life(tmp_path)
    conversation = killed(life, TWO)
    conversation.add_result(conversation.unanswered[0], Result(text="did a"))
    life.live(calls=1)
    assert results(life) == ["did a", "did b"]
    assert life.do.done == ["b"]


def test_mail_that_arrives_while_a_call_is_resumed_is_in_the_next_request(tmp_path: Path) -> None:
    """The mail was not there at the look at the start."""

    async def mail(_: str) -> None:
        if not life.do.done:
            life.send("stop, the plan has changed")

    life = Life(tmp_path, do=Do(mail))
    killed(life, TWO)
    life.live(calls=1)
    assert life.do.done == ["a", "b"]
    assert [block["type"] for block in life.model.last()] == ["tool_result", "tool_result", "text"]


def test_a_call_that_had_started_is_not_run_again_and_the_model_is_told(tmp_path: Path) -> None:
    """It may have sent the mail, paid the bill or removed the file: the model has to check."""
    life = Life(tmp_path)
    conversation = killed(life, TWO)
    conversation.begin_call(conversation.unanswered[0])
    life.live(calls=1)
    assert results(life) == [INTERRUPTED_CALL, "did b"]
    assert life.do.done == ["b"]


def test_a_repeatable_call_is_run_again_under_the_same_key(tmp_path: Path) -> None:
    """A repeated send under the same id is one message to its receiver."""
    life = Life(tmp_path, do=Look())
    conversation = killed(life, TWO)
    first, second = map(conversation.key_of, conversation.unanswered)
    for call in conversation.unanswered:
        conversation.begin_call(call)
    life.live(calls=1)
    assert results(life) == ["did a", "did b"]
    assert isinstance(life.do, Look)
    assert life.do.keys == [first, second]
    assert first != second


def test_no_two_calls_share_a_key(tmp_path: Path) -> None:
    """Servers give the same call id twice; the receiver would drop the second message."""
    call = ("do", {"word": "same"})
    life = Life(tmp_path, use(call, call), use(call), do=Look())
    life.send("work")
    life.live(calls=3)
    assert isinstance(life.do, Look)
    assert len(set(life.do.keys)) == len(life.do.keys) == 3
    fresh = Life(tmp_path / "other", use(call), do=Look())
    fresh.send("work")
    fresh.live(calls=2)
    assert isinstance(fresh.do, Look)
    assert not set(fresh.do.keys) & set(life.do.keys), "two teammates may write to one receiver"


def test_a_tool_that_is_cancelled_is_not_run_again(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def hang(_: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    life = Life(tmp_path, use(("do", {"word": "a"})), do=Do(hang))
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await begun.wait()

    asyncio.run(scenario())
    life.live(calls=2)
    texts = [block["content"][0]["text"] for block in life.model.last()]
    assert texts == [INTERRUPTED_CALL]


def test_a_turn_that_had_ended_is_only_recorded_as_ended(tmp_path: Path) -> None:
    """It was killed between the last reply and the record; no request is left to send."""
    life = Life(tmp_path)
    killed(life, say("All done."))
    life.live(calls=0)
    records = life.conversation()
    assert not records.owes_reply
    assert not records.unfollowed


@pytest.mark.parametrize("calls", [0, 1])
def test_a_reply_that_was_cut_off_is_continued(tmp_path: Path, calls: int) -> None:
    life = Life(tmp_path)
    cut = use(("do", {"word": "a"}), stop_reason="max_tokens") if calls else None
    killed(life, cut or say("So far", stop_reason="max_tokens"))
    life.live(calls=1)
    assert life.do.done == [], "a call that was cut off must not run"
    texts = [block["text"] for block in life.model.last(0) if block["type"] == "text"]
    assert (CUT_OFF_REPLY in texts) == (not calls)


def test_the_same_id_with_another_text_is_a_different_message(tmp_path: Path) -> None:
    """A foreign program may count its ids from 1 at every start; none of its mail may be lost."""
    life = Life(tmp_path, say("one"), say("two"))
    life.send("the first", id="1")
    life.live(calls=1)
    life.send("the second", id="1")
    life.live(calls=2)
    assert "the second" in life.model.last()[-1]["text"]
