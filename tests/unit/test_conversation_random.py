"""The conversation after random sequences of events."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from hypothesis import given, settings
from hypothesis import strategies as st

from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import restate
from teamd.agent.conversation.state import ConversationState
from teamd.messages import Message
from teamd.models import Ask, Reply
from teamd.tools import Result
from teamd.transcript.file import Transcript
from teamd.transcript.records import PAUSED, NoteAdded, Opened
from tests.strict.replies import Answer, say, tool_calls
from tests.unit.life import MODEL, SYSTEM, Judge, as_record, replied

DO = ("do", {"word": "x"})
TOOL = {"name": "do", "description": "Do it.", "input_schema": {"type": "object"}}


def mail(*contents: str) -> list[Message]:
    return [Message(sender="lead", to="alice", content=content) for content in contents]


def written(path: Path) -> Conversation:
    return Conversation(Transcript(path, durable=False))


class Talk:
    """A conversation as the loop drives it, and the strict server that checks its requests."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._judge = Judge()
        self._paused = False
        self.asked = 0
        self.now = written(path)
        self.now.open(Opened(system=SYSTEM))

    def mail(self, contents: list[str]) -> None:
        """Deliver mail."""
        self._paused = False
        self.now.deliver(mail(*contents))

    def note(self, text: str) -> None:
        self._paused = False
        self.now.add_note(f"<note>{text}</note>")

    def answer(self, answer: Answer) -> None:
        """Send a request if a reply is owed, and carry out the reply."""
        if not self.now.owes_reply:
            return
        reply = replied(answer, self._check())
        pauses = reply.stop_reason == "pause_turn"
        # The strict server does not take back two paused turns that were merged into one, and
        # cannot tell a thought of a paused turn from the same thought in the turn that follows.
        if self._paused and (pauses or answer.redacted or answer.thinking is not None):
            return
        if pauses and (tool_calls(reply.content) or not reply.text.strip()):
            return
        self._paused = pauses
        self._judge.remember(reply)
        self.now.add_reply(reply)
        self._follow(reply)

    def restart(self, _: object = None) -> None:
        """Replay the transcript as the next process would, and compare."""
        again = written(self._path)
        assert json.dumps(again.context.messages()) == json.dumps(self.now.context.messages())
        facts = ("opened", "owes_reply", "unanswered", "turns", "input_tokens", "output_tokens")
        for fact in facts:
            assert getattr(again, fact) == getattr(self.now, fact)
        self.now = again

    def pause(self, reason: str) -> None:
        """End the turn with a permanent error."""
        if self.now.owes_reply:
            self.now.end_turn(PAUSED, reason)

    def open(self, role: str) -> None:
        """Open the conversation again, as a new spawn does."""
        self._paused = False
        self.now.open(Opened(system=f"You are 'alice', role: {role}."))

    def checkpoint(self, _: object) -> None:
        """Write a checkpoint; the next process reads no earlier record."""
        self.now.checkpoint()

    def clear(self, kept: int) -> None:
        """Clear old results."""
        cleared = self.now.clear(kept=kept, least_bytes=1)
        assert not self.now.clear(kept=kept, least_bytes=1), "what is cleared stays as it is"
        assert self.now.context.bytes == weight(self.now.context.messages())
        if cleared:
            self.restart()

    def summarise(self, text: str) -> None:
        """Replace the whole conversation by a summary."""
        owed = self.now.open_items
        reply = replied(say(text)) if text else None
        restated = restate(self.now.identity, tuple, owed, limit_bytes=200)
        self.now.summarise(restated, text=text, reply=reply)
        (block,) = self.now.context.messages()[0]["content"]
        assert "You are 'alice', role: " in block["text"]
        assert "[cut here" in block["text"] or all(
            escape(mail.content) in block["text"] for one in owed for mail in one.messages
        )
        self._paused = False

    def _follow(self, reply: Reply) -> None:
        calls = self.now.unanswered
        for number, call in enumerate(calls):
            if number == 1:
                self.restart()  # in the middle of a turn
            self.now.add_result(call, Result(text=f"did {number} " * 40, is_error=number > 0))
        if not self.now.owes_reply:
            self.now.end_turn(reply.stop_reason, reply.text)

    def _check(self) -> Ask:
        self.asked += 1
        ask = Ask(
            model=MODEL,
            system=self.now.opened.system,
            tools=[TOOL],
            messages=self.now.context.messages(),
            max_tokens=1000,
        )
        self._judge.check(ask)
        return ask


def weight(messages: list[dict[str, Any]]) -> int:
    """Return the size of all content blocks in bytes."""
    blocks = [block for message in messages for block in message["content"]]
    return sum(
        len(json.dumps(block, ensure_ascii=False, separators=(",", ":")).encode())
        for block in blocks
    )


words = st.text(max_size=20) | st.sampled_from(["", " ", "\n"])
contents = words.map(lambda text: text.replace("\0", ""))  # mail cannot contain NUL
reasons = ["end_turn", "max_tokens", "pause_turn", "refusal", "later", "tool_use"]
answers = st.builds(
    Answer,
    text=words,
    thinking=st.none() | words,
    redacted=st.booleans(),
    calls=st.lists(st.just(DO), max_size=3).map(tuple),
    stop_reason=st.sampled_from(reasons),
)
steps = st.one_of(
    st.tuples(st.just("mail"), st.lists(contents, min_size=1, max_size=2)),
    st.tuples(st.just("answer"), answers),
    st.tuples(st.just("answer"), answers),
    st.tuples(
        st.sampled_from(["note", "pause", "open", "restart", "checkpoint", "summarise"]), words
    ),
    st.tuples(st.just("clear"), st.integers(0, 4)),
)


@settings(deadline=None)
@given(st.lists(steps, max_size=20))
def test_after_any_events_the_service_accepts_the_conversation_and_it_is_read_back_unchanged(
    taken: list[tuple[str, Any]],
) -> None:
    """A conversation that breaks a rule is refused each time, so its teammate is stuck."""
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk(Path(folder) / "alice.jsonl")
        for what, given_to_it in [("mail", ["work"]), *taken, ("mail", ["more"])]:
            getattr(talk, what)(given_to_it)
        talk.answer(say("Done."))
        talk.restart()
    assert talk.asked > 0


def written_down(reply: Reply) -> dict[str, Any]:
    usage = dict.fromkeys(("input_tokens", "cache_read_tokens", "cache_write_tokens"), 10)
    return {
        "record": "reply",
        "content": reply.content,
        "stop_reason": reply.stop_reason,
        "model": reply.model,
        "usage": {**usage, "output_tokens": 1},
    }


records = st.one_of(
    st.builds(lambda text: {"record": "note", "text": text}, st.sampled_from(["n", "<note>m"])),
    st.builds(
        lambda texts: {"record": "mail", "messages": [m.to_json() for m in mail(*texts)]},
        st.lists(contents, min_size=1, max_size=2),
    ),
    st.builds(
        lambda text, calls: written_down(replied(say(text, calls=[DO] * calls))),
        words,
        st.integers(0, 3),
    ),
    st.builds(lambda number: {"record": "result", "number": number}, st.integers(0, 9)),
    st.builds(lambda number: {"record": "cleared", "through": number}, st.integers(0, 9)),
    st.builds(
        lambda text: {"record": "summary", "text": text, "restated": "You are 'alice'."}, words
    ),
    st.just({"record": "opened", "system": SYSTEM}),
    st.sampled_from(
        [{"record": "ended", "outcome": kind, "text": ""} for kind in (PAUSED, "end_turn")]
    ),
    st.just({"record": "of a later version"}),
)


@settings(deadline=None)
@given(st.lists(records, max_size=25))
def test_any_records_in_any_order_make_a_conversation_that_the_service_accepts(
    found: list[dict[str, Any]],
) -> None:
    """A kill, another version or an edit by hand may have changed the transcript."""
    state, calls = ConversationState(), ["toolu_none"]
    for record in [{"record": "opened", "system": SYSTEM}, *found]:
        if record["record"] == "result":  # of any existing call, or of an unknown one
            call = calls[record["number"] % len(calls)]
            text = f"did {call} " * 30
            facts = {"tool_use_id": call, "content": text, "is_error": False}
            state.apply(as_record({**record, **facts}))
        else:
            calls += [one["id"] for one in record.get("content", []) if "id" in one]
            state.apply(as_record(record))
        assert state.context.bytes == weight(state.context.messages())
    for call in state.unanswered:
        state.context.add_result(call["id"], "done", is_error=False)
    state.apply(NoteAdded(text="more"))
    judge = Judge()
    whole = state.context.messages()
    newer = [
        state.context.messages_with("Sum up.", skipped=skipped, texts=texts)
        for skipped in range(state.context.length + 1)
        for texts in (True, False)
    ]
    for messages in (whole, *newer):
        ask = Ask(model=MODEL, system=SYSTEM, tools=[TOOL], messages=messages, max_tokens=1000)
        judge.check(ask)
