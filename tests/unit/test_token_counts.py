"""A new process reserves exactly as many tokens for a call as the previous one would have."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd.agent.conversation.context import frame_of
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.model_calls import UNSEEN_TOKENS
from teamd.budget.ledger import Ledger
from teamd.messages import new_id
from teamd.model_server import Usage
from teamd.models import Ask, Provider, Reply, TransientError, UnusableError
from teamd.models.encoding import size_of
from teamd.tools import Result
from teamd.transcript.file import Transcript
from teamd.transcript.records import Opened
from tests.strict.replies import Answer, say
from tests.unit.life import MODEL, SYSTEM, calls_to, replied

TOOLS = [{"name": "do", "description": "Do it. " * 40, "input_schema": {"type": "object"}}]
BYTES_PER_TOKEN = 4
SERVERS_OWN = 300  # tokens that the server adds before a prompt


class Counting:
    """A server that counts all input and returns the set answer."""

    def __init__(self) -> None:
        self.answer: Answer | None = None

    async def reply(self, ask: Ask) -> Reply:
        """Answer, or raise `TransientError` if no answer is set."""
        if self.answer is None:
            raise TransientError("busy")
        reply = replied(self.answer)
        usage = Usage(input_tokens=tokens_of(ask), output_tokens=tokens_said(reply.content))
        return replace(reply, usage=usage)


def tokens_of(ask: Ask) -> int:
    """Return the server's count of a request."""
    return SERVERS_OWN + size_of([ask.system, ask.tools, ask.messages]) // BYTES_PER_TOKEN


def tokens_said(content: list[dict[str, Any]]) -> int:
    """Return the server's count of a reply: thoughts cost more here than in a later request."""
    thoughts = sum(len(block.get("thinking", "")) for block in content)
    message = {"role": "assistant", "content": content}
    return size_of(message) // BYTES_PER_TOKEN + 1 + thoughts


class Desk(Provider):
    """A process with a conversation on disk and a metered model.

    Attributes:
        kept: the reserved tokens of the last request.
    """

    def __init__(self, folder: Path, *, place: str = "here") -> None:
        self.talk = Conversation(Transcript(folder / "alice.jsonl", durable=False))
        self.server = Counting()
        self.kept = 0
        self._ledger = Ledger(folder / f"{new_id()}.jsonl")
        self._metered = calls_to(self, self._ledger)
        self._place = place

    def asks(self, *, demand: str = "", **other: Any) -> Ask:
        """Return the next request of the conversation, or one for a summary."""
        ask = Ask(
            model=MODEL, system=self.talk.opened.system, tools=TOOLS, messages=[], max_tokens=1000
        )
        ask, context = replace(ask, **other), self.talk.context
        frame = frame_of(ask, self._place)
        messages = context.messages(frame)
        if demand:
            messages = context.messages_with(demand, skipped=0, texts=True, frame=frame)
        known = context.most_tokens(messages, frame, system=False)
        return replace(ask, messages=messages, frame=frame, most_input_tokens=known)

    def ask(self, ask: Ask, answer: Answer) -> Reply:
        """Make a call that gets this answer."""
        self.server.answer = answer
        return replace(asyncio.run(self._metered.reply(ask)), frame=ask.frame)

    def would_keep(self, ask: Ask) -> int:
        """Return the reserved tokens of a request that is not answered."""
        self.server.answer = None
        with pytest.raises(UnusableError):
            asyncio.run(self._metered.reply(ask))
        return self.kept

    async def reply(self, ask: Ask) -> Reply:
        """Record the reservation, then ask the server."""
        (kept,) = self._ledger.read().held.values()
        self.kept = kept.input_tokens
        return await self.server.reply(ask)


class Story:
    """A working process, compared at each request with one that has just read its transcript."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = Desk(folder)
        self.asked = 0
        self._numbers = itertools.count()
        self.now.talk.open(Opened(system=SYSTEM))

    def words(self, length: int) -> str:
        """Return a text that did not occur before."""
        return f"{next(self._numbers)}: " + "mm hm " * length

    def note(self, length: int) -> None:
        """Add a note."""
        self.now.talk.add_note(self.words(length))

    def answer(self, answer: Answer) -> None:
        """Make a call and apply the reply; no two replies are the same."""
        talk = self.now.talk
        answer = replace(answer, text=answer.text and self.words(0) + answer.text)
        if not talk.owes_reply:
            self.note(1)
        self._compare()
        talk.add_reply(self.now.ask(self.now.asks(), answer))
        for call in talk.unanswered:
            talk.begin_call(call)
            talk.add_result(call, Result(text=self.words(60)))
        if not talk.owes_reply:
            talk.end_turn(answer.stop_reason or "", talk.said)

    def clear(self, kept: int) -> None:
        """Clear old results."""
        self.now.talk.clear(kept=kept, least_bytes=1)

    def summarise(self, text: str) -> None:
        """Replace the conversation by a summary; without a text the reply is unusable."""
        talk = self.now.talk
        demand = self.words(99)
        self._compare(demand=demand)
        reply = self.now.ask(self.now.asks(demand=demand), say(text))
        if not text:
            talk.add_failed_summary(reply)
        talk.summarise(self.words(9), text=text, reply=reply if text else None)

    def open(self, _: object) -> None:
        """Open the conversation again, as a new spawn does."""
        self.now.talk.open(Opened(system=SYSTEM))

    def checkpoint(self, _: object) -> None:
        """Write a checkpoint; the next process reads no earlier record."""
        self.now.talk.checkpoint()

    def restart(self, _: object) -> None:
        """Replace the process by the next one."""
        self.now = Desk(self.folder)

    def _compare(self, **given_to_it: str) -> None:
        self.asked += 1
        next_one, ask = Desk(self.folder), self.now.asks(**given_to_it)
        assert next_one.asks(**given_to_it) == ask
        new = self.now.would_keep(ask)
        assert new >= tokens_of(ask), "what is kept back must do"


lengths = st.integers(0, 80)
thoughts = st.none() | st.sampled_from(["mm", "hm " * 400])
answers = st.one_of(
    st.builds(lambda length, thought: say("Yes. " * length, thinking=thought), lengths, thoughts),
    st.builds(
        lambda calls, thought: say("", thinking=thought, calls=[("do", {})] * calls),
        st.integers(1, 3),
        thoughts,
    ),
    st.sampled_from(
        [say("No.", stop_reason="refusal"), say("So far", stop_reason="pause_turn"), say("")]
    ),
)
steps = st.one_of(
    st.tuples(st.just("note"), lengths),
    st.tuples(st.just("answer"), answers),
    st.tuples(st.just("answer"), answers),
    st.tuples(st.just("clear"), st.integers(0, 3)),
    st.tuples(st.just("summarise"), st.sampled_from(["", "All went well."])),
    st.tuples(st.sampled_from(["open", "restart", "checkpoint"]), st.none()),
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(steps, max_size=12))
def test_a_new_process_reserves_as_much_as_the_old_one_and_never_too_little(
    taken: list[tuple[str, Any]],
) -> None:
    """With a higher figure, the next process would refuse a limit that was raised as advised."""
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder))
        for what, given_to_it in [("note", 9), *taken]:
            getattr(story, what)(given_to_it)
        story.answer(say("Done."))
    assert story.asked > 0


def worked(folder: Path) -> Story:
    """Return a process that has read a long file and received another note."""
    story = Story(folder)
    story.note(300)
    story.answer(say("Yes. " * 300))
    story.note(5)
    return story


def test_a_new_process_counts_only_content_after_the_last_reply_by_bytes(
    tmp_path: Path,
) -> None:
    story = worked(tmp_path)
    ask = story.now.asks()
    told = tokens_of(replace(ask, messages=ask.messages[:1]))
    said = tokens_said(ask.messages[1]["content"])
    assert Desk(tmp_path).would_keep(ask) == told + said + size_of(ask.messages[2:])


def test_the_text_in_place_of_a_cleared_result_counts_by_its_bytes(tmp_path: Path) -> None:
    """Ten thousand spaces may be fewer tokens than the sentence that replaces them."""
    story = Story(tmp_path)
    story.answer(say("", calls=[("do", {})]))
    story.answer(say("Yes. " * 10))
    before = story.now.asks()
    story.clear(kept=0)
    after = story.now.asks()
    (block,) = after.messages[2]["content"]
    replacement = block["content"][0]["text"]
    assert replacement.startswith("[cleared:")
    assert before.most_input_tokens is not None
    assert after.most_input_tokens == before.most_input_tokens + len(replacement)


@pytest.mark.parametrize(
    "other",
    [
        {"model": "another"},
        {"system": f"{SYSTEM} Be brief."},
        {"tools": [*TOOLS, {**TOOLS[0], "name": "undo"}]},
    ],
    ids=lambda other: next(iter(other)),
)
def test_with_another_model_prompt_or_tools_a_new_process_counts_all_by_bytes(
    other: dict[str, Any], tmp_path: Path
) -> None:
    """A new version has other tools, which have not been counted."""
    worked(tmp_path)
    ask = Desk(tmp_path).asks(**other)
    whole = size_of([ask.system, ask.tools, ask.messages]) + UNSEEN_TOKENS
    assert Desk(tmp_path).would_keep(ask) == whole


def test_a_count_of_another_server_is_ignored(tmp_path: Path) -> None:
    """The same name may be another model there, with shorter tokens."""
    worked(tmp_path)
    there = Desk(tmp_path, place="elsewhere")
    by_bytes = there.would_keep(ask := there.asks())
    assert by_bytes >= size_of(ask.messages)
    assert Desk(tmp_path).would_keep(Desk(tmp_path).asks()) < by_bytes


@pytest.mark.parametrize("lacking", ["frame", "usage"])
def test_a_reply_without_a_count_makes_a_new_process_count_all_by_bytes(
    lacking: str, tmp_path: Path
) -> None:
    """An earlier version recorded no frame, and not every server counts."""
    worked(tmp_path)
    path = tmp_path / "alice.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if record["record"] == "reply":
            zeros = dict.fromkeys(record["usage"], 0)
            record[lacking] = {"frame": "", "usage": zeros}[lacking]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    ask = Desk(tmp_path).asks()
    whole = size_of([ask.system, ask.tools, ask.messages]) + UNSEEN_TOKENS
    assert Desk(tmp_path).would_keep(ask) == whole


@pytest.mark.parametrize("anew", ["open", "summarise"])
def test_token_count_is_reset_when_a_conversation_is_replaced(anew: str, tmp_path: Path) -> None:
    """The new conversation may reach the same number of messages, and be longer."""
    story = Story(tmp_path)
    for _ in range(3):
        story.answer(say("Yes."))
    getattr(story, anew)("All went well.")
    story.note(500)
    story.answer(say("Yes."))
    story.note(1)
    ask = Desk(tmp_path).asks()
    assert Desk(tmp_path).would_keep(ask) >= tokens_of(ask)
