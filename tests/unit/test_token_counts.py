"""What a new process keeps back for a call: just what the one before it would have."""

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

from teamd.agent.conversation.context import CountedRequest
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.model_stack import UNSEEN_TOKENS, Metered
from teamd.budget.ledger import Ledger
from teamd.messages import new_id
from teamd.model_server.usage import Usage
from teamd.models import Ask, ChatMessage, Reply, TransientError
from teamd.models.encoding import size_of
from teamd.process_id import Identity
from teamd.tools import Result
from teamd.transcript.file import Transcript
from teamd.transcript.records import Opened
from tests.strict.replies import Answer, say
from tests.unit.life import MODEL, SYSTEM, replied

TOOLS = [{"name": "do", "description": "Do it. " * 40, "input_schema": {"type": "object"}}]
BYTES_PER_TOKEN = 4
SERVERS_OWN = 300  # tokens that it puts before a prompt


class Counting:
    """A server that counts all it is sent, and says the next of its answers."""

    def __init__(self) -> None:
        self.answer: Answer | None = None

    async def reply(self, ask: Ask) -> Reply:
        """Answer; without an answer it is busy, and nothing was asked."""
        if self.answer is None:
            raise TransientError("busy")
        reply = replied(self.answer)
        usage = Usage(input_tokens=tokens_of(ask), output_tokens=tokens_said(reply.content))
        return replace(reply, usage=usage)


def tokens_of(ask: Ask) -> int:
    """What the server counts of a request."""
    return SERVERS_OWN + size_of([ask.system, ask.tools, ask.messages]) // BYTES_PER_TOKEN


def tokens_said(content: list[dict[str, Any]]) -> int:
    """What it counts of a reply: thoughts are dearer than they are when they come back to it."""
    thoughts = sum(len(block.get("thinking", "")) for block in content)
    message = {"role": "assistant", "content": content}
    return size_of(message) // BYTES_PER_TOKEN + 1 + thoughts


class Desk:
    """A process: a conversation as it stands on disk, and who asks for it.

    Attributes:
        kept: the tokens of the last request, at the most.
    """

    def __init__(self, folder: Path, *, place: str = "here") -> None:
        self.talk = Conversation(Transcript(folder / "alice.jsonl", durable=False))
        self.server = Counting()
        self.kept = 0
        self._ledger = Ledger(folder / f"{new_id()}.jsonl")
        self._metered = Metered(
            self,
            self._ledger,
            name="alice",
            process=Identity.own(),
            free=True,
            server=place,
            known=self.talk.counts.requests(self.talk.context),
        )

    def asks(self, model: str = MODEL) -> Ask:
        """The next request of the conversation."""
        messages = self.talk.context.messages()
        system = self.talk.opened.system
        return Ask(model=model, system=system, tools=TOOLS, messages=messages, max_tokens=1000)

    def ask(self, ask: Ask, answer: Answer) -> Reply:
        """Ask, and have this answered."""
        self.server.answer = answer
        return asyncio.run(self._metered.reply(ask))

    def would_keep(self, ask: Ask) -> int:
        """The tokens that are kept back for a request, which is not answered."""
        self.server.answer = None
        with pytest.raises(TransientError):
            asyncio.run(self._metered.reply(ask))
        return self.kept

    async def reply(self, ask: Ask) -> Reply:
        """Look at what is kept back, then ask the server."""
        (kept,) = self._ledger.read().held.values()
        self.kept = kept.input_tokens
        return await self.server.reply(ask)


class Story:
    """A process at work, and at each request one that has just read its transcript."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = Desk(folder)
        self.asked = 0
        self._numbers = itertools.count()
        self.now.talk.open(Opened(system=SYSTEM))

    def words(self, length: int) -> str:
        """Some that were never said before."""
        return f"{next(self._numbers)}: " + "mm hm " * length

    def note(self, length: int) -> None:
        """Have it told something."""
        self.now.talk.add_note(self.words(length))

    def answer(self, answer: Answer) -> None:
        """Ask, and do what the reply says; no two are the same."""
        talk = self.now.talk
        answer = replace(answer, text=answer.text and self.words(0) + answer.text)
        if not talk.owes_reply:
            self.note(1)
        self._compare(self.now.asks())
        talk.add_reply(self.now.ask(self.now.asks(), answer))
        for call in talk.unanswered:
            talk.begin_call(call)
            talk.add_result(call, Result(text=self.words(60)))
        if not talk.owes_reply:
            talk.end_turn(answer.stop_reason or "", talk.said)

    def clear(self, kept: int) -> None:
        """Have old results cleared."""
        self.now.talk.clear(kept=kept, least_bytes=1)

    def summarise(self, text: str) -> None:
        """Have a summary take the place of everything; without a text the reply is of no use."""
        talk = self.now.talk
        messages = talk.context.messages_with(self.words(99), skipped=0, texts=True)
        demand = replace(self.now.asks(), messages=messages)
        self._compare(demand)
        reply = self.now.ask(demand, say(text))
        if not text:
            talk.add_failed_summary(reply)
        talk.summarise(self.words(9), text=text, reply=reply if text else None)

    def open(self, _: object) -> None:
        """Be spawned afresh."""
        self.now.talk.open(Opened(system=SYSTEM))

    def checkpoint(self, _: object) -> None:
        """Have the state written down; the next process reads no record above."""
        self.now.talk.checkpoint()

    def restart(self, _: object) -> None:
        """Be the next process of that name."""
        self.now = Desk(self.folder)

    def _compare(self, ask: Ask) -> None:
        self.asked += 1
        old, new = self.now.would_keep(ask), Desk(self.folder).would_keep(ask)
        assert new == old
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
def test_a_new_process_keeps_back_what_the_old_one_would_and_never_too_little(
    taken: list[tuple[str, Any]],
) -> None:
    """More, and who was told to raise a limit to a figure is refused by the next process."""
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder))
        for what, given_to_it in [("note", 9), *taken]:
            getattr(story, what)(given_to_it)
        story.answer(say("Done."))
    assert story.asked > 0


def worked(folder: Path) -> Story:
    """One that has read a long file, and been asked something since."""
    story = Story(folder)
    story.note(300)
    story.answer(say("Yes. " * 300))
    story.note(5)
    return story


def test_a_new_process_counts_by_bytes_what_came_since_the_last_reply_alone(
    tmp_path: Path,
) -> None:
    story = worked(tmp_path)
    ask = story.now.asks()
    told = tokens_of(replace(ask, messages=ask.messages[:1]))
    said = tokens_said(ask.messages[1]["content"])
    assert Desk(tmp_path).would_keep(ask) == told + said + size_of(ask.messages[2:])


@pytest.mark.parametrize(
    "other",
    [
        {"model": "another"},
        {"system": f"{SYSTEM} Be brief."},
        {"tools": [*TOOLS, {**TOOLS[0], "name": "undo"}]},
    ],
    ids=lambda other: next(iter(other)),
)
def test_where_model_prompt_or_tools_have_changed_a_new_process_counts_all_by_bytes(
    other: dict[str, Any], tmp_path: Path
) -> None:
    """A new version has other tools, and nobody has counted those."""
    ask = replace(worked(tmp_path).now.asks(), **other)
    whole = size_of([ask.system, ask.tools, ask.messages]) + UNSEEN_TOKENS
    assert Desk(tmp_path).would_keep(ask) == whole


def test_what_another_server_has_counted_tells_nothing(tmp_path: Path) -> None:
    """The same name may stand for another model there, whose tokens are shorter."""
    worked(tmp_path)
    ask = Desk(tmp_path).asks()
    by_bytes = Desk(tmp_path, place="elsewhere").would_keep(ask)
    assert by_bytes >= size_of(ask.messages)
    assert Desk(tmp_path).would_keep(ask) < by_bytes


@pytest.mark.parametrize("lacking", ["frame", "usage"])
def test_a_reply_that_does_not_tell_leaves_all_to_be_counted_by_bytes(
    lacking: str, tmp_path: Path
) -> None:
    """An earlier version noted no frame, and not every server counts."""
    ask = worked(tmp_path).now.asks()
    path = tmp_path / "alice.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if record["record"] == "reply":
            zeros = dict.fromkeys(record["usage"], 0)
            record[lacking] = {"frame": "", "usage": zeros}[lacking]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    whole = size_of([ask.system, ask.tools, ask.messages]) + UNSEEN_TOKENS
    assert Desk(tmp_path).would_keep(ask) == whole


def test_after_a_summary_only_prompt_and_tools_need_not_be_counted_by_bytes(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path)
    story.note(1)
    story.answer(say("Yes."))
    first = tokens_of(replace(story.now.asks(), messages=story.now.talk.context.messages()[:1]))
    said = tokens_said(story.now.talk.context.messages()[1]["content"])
    story.summarise("All went well.")
    ask = story.now.asks()
    assert Desk(tmp_path).would_keep(ask) == first + said + size_of(ask.messages)


@pytest.mark.parametrize("anew", ["open", "summarise"])
def test_what_took_the_place_of_a_conversation_is_not_taken_for_what_was_counted_of_it(
    anew: str, tmp_path: Path
) -> None:
    """As many messages as were counted may stand there again, and be longer."""
    story = Story(tmp_path)
    for _ in range(3):
        story.answer(say("Yes."))
    getattr(story, anew)("All went well.")
    story.note(500)
    story.answer(say("Yes."))
    story.note(1)
    ask = story.now.asks()
    assert Desk(tmp_path).would_keep(ask) >= tokens_of(ask)


@given(st.lists(st.integers(2, 99)), st.integers(0, 12), st.integers(0, 12), st.integers(0, 999))
def test_no_count_tells_less_than_what_is_seen_of_it_at_a_glance(
    sizes: list[int], length: int, changed: int, tokens: int
) -> None:
    """A count is passed over by that alone, where it could have been the lowest."""
    messages: list[ChatMessage] = [{"role": "user", "content": [number]} for number in sizes]
    before = [*messages[:changed], *({"role": "x", "content": []} for _ in range(length))]
    known = CountedRequest(frame="f", messages=before[:length], said=[], tokens=tokens)
    assert known.least(sizes) <= known.bound(messages, sizes)
