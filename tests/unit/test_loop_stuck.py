"""If a model repeats a call, its turn ends, the lead is told, and the next mail resumes it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from teamd.agent.conversation.compaction import Compaction
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.turn import run_subagent
from teamd.agent.wakeup import CallBudget
from teamd.settings.schema import ModelSettings
from teamd.tools import Toolbox, ToolError
from teamd.transcript.file import Transcript
from teamd.transcript.records import Opened
from tests.strict.replies import say, use
from tests.unit.life import MODEL, SYSTEM, Do, Life, Player

SAME = ("do", {"word": "x"})
TOLD = (
    "alice was stopped since it made the same call of do 6 times in a turn, with nothing new, and "
    "is idle now; send alice a message to make it continue"
)


def results(life: Life) -> list[tuple[str, bool]]:
    """Return the results of all calls, each text cut at its first comma."""
    found = []
    for message in life.model.asked[-1].messages:
        for block in message["content"]:
            if block["type"] == "tool_result":
                text = block["content"][0]["text"]
                found.append((text.partition(",")[0], block["is_error"]))
    return found


def test_the_sixth_repeat_ends_the_turn_and_each_turn_starts_at_zero(tmp_path: Path) -> None:
    life = Life(tmp_path, *[use(SAME)] * 8)
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=6)
            assert life.lead == [TOLD]
            life.send("Try something else.")
            await life.rests(calls=9)

    asyncio.run(scenario())
    warned = "you have made this very call {} times in this turn"
    assert results(life) == [
        ("did x", False),
        ("did x", False),
        *((warned.format(count), True) for count in (3, 4, 5, 6)),
        ("did x", False),
        ("did x", False),
    ]
    assert life.lead == [TOLD]


def test_calls_after_the_sixth_repeat_do_not_run(tmp_path: Path) -> None:
    other = ("do", {"word": "y"})
    life = Life(tmp_path, use(*[SAME] * 8, other))
    life.send("work")
    life.live(calls=1)
    assert life.do.done == ["x"] * 6
    life.send("Go on.")
    life.live(calls=2)
    assert results(life)[6:] == [("this call did not run: your turn ended", True)] * 3
    assert life.lead == [TOLD]


def test_mail_in_a_turn_allows_the_same_call_again(tmp_path: Path) -> None:
    life = Life(tmp_path, *[use(SAME)] * 8)

    async def write(_: str) -> None:
        if len(life.do.done) % 2:
            life.send("Look again.")

    life.do = Do(write)
    life.send("work")
    life.live(calls=9)
    assert {is_error for _, is_error in results(life)} == {False}


def test_a_call_that_takes_a_second_never_ends_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, read = Life(tmp_path, *[use(SAME)] * 8), time.clock_gettime

    async def take_a_second(_: str) -> None:
        done = len(life.do.done) + 1
        monkeypatch.setattr(time, "clock_gettime", lambda which: read(which) + done)

    life.do = Do(take_a_second)
    life.send("work")
    life.live(calls=9)
    assert [is_error for _, is_error in results(life)] == [False] * 2 + [True] * 6
    assert life.lead == []


def test_a_subagent_that_repeats_a_call_fails_with_a_sentence(tmp_path: Path) -> None:
    conversation = Conversation(Transcript(tmp_path / "helper.jsonl", durable=False))
    conversation.open(Opened(system=SYSTEM))
    model = Player(*[say("Again.", calls=(SAME,))] * 8)
    compaction = Compaction(
        conversation=conversation,
        model=model,
        toolbox=Toolbox([Do()]),
        settings=ModelSettings(max_tokens=1000),
        model_name=lambda _: MODEL,
    )
    failed = "not finished when it repeated one call of do again and again; its last text: Again.$"
    with pytest.raises(ToolError, match=failed):
        asyncio.run(run_subagent(compaction, CallBudget(50), "Do it."))
    assert len(model.asked) == 6
