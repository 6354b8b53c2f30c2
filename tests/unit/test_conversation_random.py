"""The conversation after whatever may happen to it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from teamd.agent.conversation import Conversation
from teamd.agent.standing import PAUSED
from teamd.models import Ask, Reply
from teamd.protocol import Message
from teamd.store.transcript import Transcript
from teamd.tools import Result
from tests.strict.replies import Answer, say
from tests.unit.life import MODEL, SYSTEM, Judge, replied

DO = ("do", {"word": "x"})
TOOL = {"name": "do", "description": "Do it.", "input_schema": {"type": "object"}}


def mail(*contents: str) -> list[Message]:
    return [Message(sender="lead", to="alice", content=content) for content in contents]


def written(path: Path) -> Conversation:
    return Conversation(Transcript(path, durable=False))


class Talk:
    """A conversation in the hands of the loop, and the service that judges its requests."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._judge = Judge()
        self._paused = False
        self.asked = 0
        self.now = written(path)
        self.now.open(SYSTEM)

    def mail(self, contents: list[str]) -> None:
        """Have mail delivered."""
        self._paused = False
        self.now.deliver(mail(*contents))

    def note(self, text: str) -> None:
        """Have a note added."""
        self._paused = False
        self.now.add_note(f"<note>{text}</note>")

    def answer(self, answer: Answer) -> None:
        """Ask if there is something to ask, and do what the reply says."""
        if not self.now.owes_reply:
            return
        self._check()
        reply = replied(answer)
        pauses = reply.stop_reason == "pause_turn"
        # What the strict server does not do: take back two paused turns merged into one, or tell
        # a thought of a paused turn from the same thought in what follows it.
        if self._paused and (pauses or answer.redacted or answer.thinking is not None):
            return
        if pauses and (reply.calls or not reply.text.strip()):
            return
        self._paused = pauses
        self._judge.remember(reply)
        self.now.add_reply(reply)
        self._follow(reply)

    def restart(self, _: object = None) -> None:
        """Be the next process of that name."""
        again = written(self._path)
        assert json.dumps(again.messages()) == json.dumps(self.now.messages())
        facts = ("system", "owes_reply", "unanswered", "turns", "input_tokens", "output_tokens")
        for fact in facts:
            assert getattr(again, fact) == getattr(self.now, fact)
        self.now = again

    def pause(self, reason: str) -> None:
        """Have a call fail for good."""
        if self.now.owes_reply:
            self.now.end_turn(PAUSED, reason)

    def open(self, role: str) -> None:
        """Be spawned afresh."""
        self._paused = False
        self.now.open(f"You are 'alice', role: {role}.")

    def _follow(self, reply: Reply) -> None:
        calls = self.now.unanswered
        for number, call in enumerate(calls):
            if number == 1:
                self.restart()  # in the middle of a turn
            self.now.add_result(call, Result(text=f"did {number}", is_error=number > 0))
        if not self.now.owes_reply:
            self.now.end_turn(reply.stop_reason, reply.text)

    def _check(self) -> None:
        self.asked += 1
        self._judge.check(
            Ask(
                model=MODEL,
                system=self.now.system,
                tools=[TOOL],
                messages=self.now.messages(),
                max_tokens=1000,
            )
        )


words = st.text(max_size=20) | st.sampled_from(["", " ", "\n"])
contents = words.map(lambda text: text.replace("\0", ""))  # no mail can hold one
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
    st.tuples(st.sampled_from(["note", "pause", "open", "restart"]), words),
)


@given(st.lists(steps, max_size=20))
def test_whatever_happens_the_service_takes_it_and_the_next_process_reads_the_same(
    taken: list[tuple[str, Any]],
) -> None:
    """A conversation that breaks a rule is refused for ever, and so is its teammate bricked."""
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk(Path(folder) / "alice.jsonl")
        for what, given_to_it in [("mail", ["work"]), *taken, ("mail", ["more"])]:
            getattr(talk, what)(given_to_it)
        talk.answer(say("Done."))
        talk.restart()
    assert talk.asked > 0
