"""Thinking is sent back to the model that produced it, while its preceding content is unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teamd.agent.conversation.context import frame_of
from teamd.agent.conversation.conversation import Conversation
from teamd.messages import Message
from teamd.models import Ask
from teamd.tools import Result
from teamd.transcript.file import Transcript
from teamd.transcript.records import Opened
from tests.strict.replies import say, use
from tests.unit.life import MODEL, SYSTEM, Judge, replied

DO = ("do", {"word": "x"})
TOOL = {"name": "do", "description": "Do it.", "input_schema": {"type": "object"}}
OTHER = {**TOOL, "description": "Do it, by a later version."}


class Talk:
    """A conversation in which each reply thinks, and a service that checks each request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._judge = Judge()
        self.tools, self.model = [TOOL], MODEL
        self.asked: list[Ask] = []
        self.now = Conversation(Transcript(path, durable=False))
        self.now.open(Opened(system=SYSTEM))
        self.now.deliver([Message(sender="lead", to="alice", content="Work.")])

    def ask(self) -> Ask:
        """Return the next request, which the service accepts."""
        ask = Ask(
            model=self.model,
            system=self.now.opened.system,
            tools=self.tools,
            messages=[],
            max_tokens=100,
        )
        messages = self.now.context.messages(frame_of(ask, ""))
        ask = replace(ask, messages=messages)
        self._judge.check(ask)
        self.asked.append(ask)
        return ask

    def go_on(self, *thoughts: str) -> None:
        """Add a reply for each thought, with a tool call and a long result."""
        for thought in thoughts:
            reply = replied(use(DO, thinking=thought), self.ask())
            self._judge.remember(reply)
            self.now.add_reply(reply)
            for call in self.now.unanswered:
                self.now.add_result(call, Result(text="result " * 100))

    def restart(self) -> None:
        """Replace the conversation by that of the next process."""
        self.now = Conversation(Transcript(self._path, durable=False))


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path / "alice.jsonl")


def thoughts(ask: Ask) -> list[str]:
    blocks: list[dict[str, Any]] = [one for m in ask.messages for one in m["content"]]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


def test_thinking_after_a_cleared_result_is_removed_and_later_thinking_is_kept(
    talk: Talk,
) -> None:
    talk.go_on("a", "b", "c", "d")
    assert talk.now.clear(kept=2, least_bytes=1)
    assert thoughts(talk.ask()) == ["a"], "the first cleared result is behind it"
    talk.go_on("e", "f", "g")
    assert thoughts(talk.ask()) == ["a", "e", "f", "g"]
    talk.restart()
    assert thoughts(talk.ask()) == ["a", "e", "f", "g"]
    assert talk.now.clear(kept=1, least_bytes=1)
    talk.go_on("h", "i")
    assert thoughts(talk.ask()) == ["a", "h", "i"]


def test_a_changed_tool_removes_only_the_thinking_before_the_change(
    talk: Talk,
) -> None:
    talk.go_on("a", "b")
    talk.restart()
    talk.tools = [OTHER]  # as after an upgrade
    assert thoughts(talk.ask()) == []
    talk.go_on("c", "d")
    assert thoughts(talk.ask()) == ["c", "d"]
    talk.tools = [TOOL]  # and after a downgrade
    assert thoughts(talk.ask()) == []
    talk.go_on("e", "f")
    assert thoughts(talk.ask()) == ["e", "f"]


def test_thinking_of_another_model_is_not_sent_back(talk: Talk) -> None:
    talk.go_on("a")
    talk.model = "other"
    assert thoughts(talk.ask()) == []
    talk.go_on("b")
    assert thoughts(talk.ask()) == ["b"]


def test_thinking_survives_a_checkpoint(talk: Talk) -> None:
    talk.go_on("a", "b", "c")
    talk.now.clear(kept=1, least_bytes=1)
    talk.go_on("d")
    talk.now.checkpoint()
    talk.restart()
    talk.go_on("e")
    assert thoughts(talk.ask()) == ["a", "d", "e"]


def test_a_summary_of_a_part_is_requested_without_thinking(talk: Talk) -> None:
    talk.go_on("a", "b", "c")
    frame = frame_of(talk.ask(), "")
    context = talk.now.context
    whole = context.messages_with("Sum up.", skipped=0, texts=True, frame=frame)
    part = context.messages_with("Sum up.", skipped=1, texts=True, frame=frame)
    assert thoughts(replace(talk.ask(), messages=whole)) == ["a", "b", "c"]
    assert thoughts(replace(talk.ask(), messages=part)) == []
    for messages in (whole, part):
        talk._judge.check(replace(talk.ask(), messages=messages))


def test_thinking_without_a_recorded_frame_is_not_sent_back(talk: Talk) -> None:
    reply = replied(say("Hi.", thinking="a"), talk.ask())
    talk.now.add_reply(replace(reply, frame=""))
    talk.now.deliver([Message(sender="lead", to="alice", content="More.")])
    assert thoughts(talk.ask()) == []
