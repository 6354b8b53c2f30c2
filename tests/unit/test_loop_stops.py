"""The stop reasons of replies, and the reaction of the loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from teamd.agent.conversation.prompts import CUT_OFF_CALL, DEMAND
from teamd.transcript.records import Opened
from tests.strict.replies import Answer, decline, say, use
from tests.unit.life import MODEL, Life, replied

FULL = "model_context_window_exceeded"
DO = ("do", {"word": "x"})


def lived(folder: Path, *plays: Answer, calls: int) -> Life:
    """Run one wake; every request is checked by the strict server."""
    life = Life(folder, *plays)
    life.send("work")
    life.live(calls=calls)
    return life


@pytest.mark.parametrize(
    "reason", ["end_turn", "stop_sequence", "tool_use", "a_reason_of_the_future"]
)
def test_a_reply_without_calls_ends_the_turn(tmp_path: Path, reason: str) -> None:
    """Without a call to answer, another request would be the same."""
    life = lived(tmp_path, say("Done.", stop_reason=reason), calls=1)
    assert life.lead == []


def test_a_reply_that_filled_the_context_is_continued_after_a_summary(tmp_path: Path) -> None:
    """The next request would be as full, and each reply would be cut off in the same place."""
    cut = say("The first half", calls=[DO], stop_reason=FULL)
    life = lived(tmp_path, cut, say("I had begun."), say("the rest"), calls=3)
    assert life.do.done == []
    (block,) = life.model.last()
    assert "I had begun." in block["text"]
    assert "work" in block["text"]


def test_a_full_context_is_known_to_the_next_process(tmp_path: Path) -> None:
    """It was killed before it reacted; the next process must not repeat the request."""
    life = Life(tmp_path, say("I had begun."))
    talk = life.conversation()
    talk.open(Opened(system="You are 'alice', role: tester."))
    talk.deliver([life.send("work")])
    talk.add_reply(replied(use(DO, stop_reason=FULL)))
    life.live(calls=2)
    assert life.model.last(0)[-1] == {"type": "text", "text": DEMAND}
    assert "I had begun." in life.model.last()[0]["text"]


def test_a_context_that_stays_full_causes_a_pause_and_one_report(tmp_path: Path) -> None:
    """Repeated requests would fill it fifty times over; mail allows another try."""
    full = say("The first half", stop_reason=FULL)
    life = Life(tmp_path, *[full] * 9, say("It fits now."))
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests("paused", calls=5)
            life.send("try again")
            await life.rests("paused", calls=9)
            life.send("and again")
            await life.rests(calls=11)

    asyncio.run(scenario())
    (told,) = life.lead
    assert told.startswith(f"alice is paused: the conversation is too long for {MODEL}")
    assert told.endswith("start over with `teamctl spawn alice … --fresh`")


def test_a_call_in_a_reply_that_was_cut_off_is_answered_and_does_not_run(tmp_path: Path) -> None:
    """It may be half a command: a cut `rm -rf /tmp/x` may be `rm -rf /`."""
    life = lived(tmp_path, use(DO, ("do", {}), stop_reason="max_tokens"), say("Again."), calls=2)
    assert life.do.done == []
    answers = [block["content"][0]["text"] for block in life.model.last()]
    assert answers == [CUT_OFF_CALL] * 2
    assert all(block["is_error"] for block in life.model.last())


def test_a_paused_turn_is_continued_with_its_text(tmp_path: Path) -> None:
    life = lived(tmp_path, say("Searching", stop_reason="pause_turn"), say("Found."), calls=2)
    last = life.model.asked[1].messages[-1]
    assert last == {"role": "assistant", "content": [{"type": "text", "text": "Searching"}]}


def test_a_refusal_ends_the_turn_is_left_out_and_reported(tmp_path: Path) -> None:
    """It comes with HTTP 200; without a report the silence would be unexplained."""
    life = lived(tmp_path, decline("I cannot"), calls=1)
    (told,) = life.lead
    assert "the model of alice refused" in told
    assert told.endswith("start over with `teamctl spawn alice … --fresh`")
    life.send("then something else")
    life.live(calls=2)
    assert "I cannot" not in str(life.model.asked[1].messages)
    assert [message["role"] for message in life.model.asked[1].messages] == ["user"]


def test_the_final_text_is_recorded_with_the_outcome(tmp_path: Path) -> None:
    """`spawn --wait` prints it."""
    life = lived(tmp_path, use(DO), say("All is well."), calls=2)
    lines = life.paths.transcript("alice").read_text().splitlines()
    assert '"outcome": "end_turn", "text": "All is well."' in lines[-1]
