"""A conversation that outgrows the model's context continues, and its teammate keeps its role."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from teamd.agent.conversation.prompts import DEMAND
from teamd.model_server.facts import ModelFacts
from teamd.models import Ask
from teamd.settings.schema import ModelSettings
from teamd.transcript.records import Opened
from tests.strict.replies import Answer, decline, say, use
from tests.unit.life import SYSTEM, Life
from tests.unit.tight import Big, Tight, demands, steps, tokens_of, words
from tests.waiting import until

CONTEXT = 4000
ROOM = ModelSettings(context_tokens=CONTEXT)
DO = ("do", {"word": "x"})


def open_work() -> Sequence[tuple[str, Sequence[str]]]:
    """Return the team's records of open work."""
    return (
        ("Your teammates:", ["bob (tester): idle"]),
        ("Your open tasks on the board:", ["3: paint the <fence>"]),
        ("Open requests:", ["plan r-1 waits for lead"]),
    )


def tight(
    folder: Path,
    answer: Callable[[Ask], Answer],
    *,
    context_tokens: int = CONTEXT,
    tells: bool = True,
    room: ModelSettings = ROOM,
    calls: int = 1000,
) -> tuple[Life, Tight]:
    life = Life(folder, do=Big(), calls=calls, room=room, open_work=open_work)
    life.opening = Opened(system=SYSTEM, name="alice", role="tester", team="project")
    model = Tight(answer, context_tokens=context_tokens, tells=tells, judge=life.judge)
    life.model = model
    return life, model


def lives(life: Life, status: str = "idle") -> None:
    """Run her next process until it rests."""
    before = len(life.states)

    async def scenario() -> None:
        async with life.lived() as task:
            await until(lambda: task.done() or life.states[before:][-1:] == [status], what=status)
            if task.done():
                task.result()

    asyncio.run(scenario())


def records(life: Life, kind: str) -> list[dict[str, object]]:
    lines = life.paths.transcript("alice").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["record"] == kind]


def first_text(ask: Ask) -> str:
    return str(ask.messages[0]["content"][0]["text"])


def test_ten_times_the_context_works_and_no_request_is_too_long(tmp_path: Path) -> None:
    """Old results are cleared first; a summary follows only if that is not enough."""
    life, model = tight(tmp_path, steps(100))
    life.send("Do all 100 steps, then report to lead.")
    lives(life)
    assert life.do.done == [str(number) for number in range(1, 101)]
    assert model.refused == []
    assert 10 * CONTEXT < 100 * 500
    assert len(records(life, "cleared")) >= len(records(life, "summary")) >= 2
    assert {(ask.system, json.dumps(ask.tools)) for ask in model.asked} == {
        (SYSTEM, json.dumps(model.asked[0].tools))
    }, "or every summary would cost the whole prompt anew"
    for ask in model.asked:
        told = first_text(ask)
        assert "Do all 100 steps, then report to lead." in told
        if "<summary>" in told:
            for open_work in (
                "You are 'alice', role: tester, a member of the team 'project'",
                "3: paint the &lt;fence&gt;",
                "plan r-1 waits for lead",
                "bob (tester): idle",
            ):
                assert open_work in told


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Life, Tight]:
    """A teammate that has done 40 steps, with results cleared and a summary."""
    life, model = tight(tmp_path_factory.mktemp("worked"), steps(40))
    life.send("work")
    lives(life)
    return life, model


def test_the_next_process_reads_the_same_bytes(worked: tuple[Life, Tight]) -> None:
    life, model = worked
    last = model.asked[-1].messages
    again = life.conversation().context.messages()
    assert json.dumps(again[: len(last)]) == json.dumps(last)
    usage = (life.conversation().turns, life.conversation().input_tokens)
    assert usage == (len(model.asked), sum(map(tokens_of, model.asked)))


@pytest.mark.slow
def test_after_a_kill_at_any_record_the_teammate_finishes_the_work(tmp_path: Path) -> None:
    """Also between clearing and a summary, or before either was recorded."""
    life, _ = tight(tmp_path / "whole", steps(30))
    life.send("work")
    lives(life)
    lines = life.paths.transcript("alice").read_bytes().splitlines(keepends=True)
    assert any(b'"summary"' in line[:30] for line in lines)
    for number in range(2, len(lines), 7):
        again, model = tight(tmp_path / str(number), steps(30))
        again.judge._issued = life.judge._issued  # the same service
        model.judge = again.judge
        transcript = again.paths.transcript("alice")
        transcript.parent.mkdir(parents=True, exist_ok=True)
        transcript.write_bytes(b"".join(lines[:number]))
        lives(again)
        assert model.refused == []
        assert again.conversation().said == "All done."


def test_the_latest_results_are_not_cleared(worked: tuple[Life, Tight]) -> None:
    _, model = worked
    cleared = [ask for ask in model.asked if "[cleared: 2 kB of output of do; run" in words(ask)]
    assert cleared
    for ask in cleared:
        results = [
            block["content"][0]["text"]
            for message in ask.messages
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        assert not any(text.startswith("[cleared") for text in results[-3:])


def test_mail_that_arrives_during_a_summary_is_delivered_once_after_it(tmp_path: Path) -> None:
    plain = steps(24)

    def answer(ask: Ask) -> Answer:
        if demands(ask) and len(model.summaries) == 1:
            life.send("And mind the gap.", id="gap")
        return plain(ask)

    life, model = tight(tmp_path, answer)
    life.send("Do 24 steps.")
    lives(life)
    number = next(n for n, ask in enumerate(model.asked) if demands(ask))
    assert "<summary>" in first_text(model.asked[number + 1])
    for ask in model.asked[number + 1 :]:
        assert words(ask).count("And mind the gap.") == 1


def test_mail_from_before_a_summary_is_not_delivered_again(tmp_path: Path) -> None:
    life, model = tight(tmp_path, steps(24))
    life.send("Do 24 steps.", id="1")
    lives(life)
    assert records(life, "summary")
    asked = len(model.asked)
    life.send("Do 24 steps.", id="1")
    life.send("Thanks.", id="2")
    lives(life)
    assert len(model.asked) == asked + 1
    assert words(model.asked[-1]).count("Do 24 steps.") == 1


def test_finished_mail_is_not_restated(tmp_path: Path) -> None:
    """A teammate that reads an old task again word for word does it again."""
    life, model = tight(tmp_path, steps(24))
    life.send("An old task.")
    life.model = Tight(lambda _: say("Done."), context_tokens=CONTEXT, judge=life.judge)
    lives(life)
    life.model = model
    life.send("Do 24 steps.")
    lives(life)
    (restated,) = {str(record["restated"]) for record in records(life, "summary")}
    assert "Do 24 steps." in restated
    assert "An old task." not in restated


@pytest.mark.parametrize("vain", [use(DO), decline("I"), say(" ")])
def test_without_a_summary_the_conversation_continues_with_the_known_facts(
    tmp_path: Path, vain: Answer
) -> None:
    """A call in its place is not run, and the model is not asked endlessly."""
    plain = steps(20)
    life, model = tight(tmp_path, lambda ask: vain if demands(ask) else plain(ask), calls=100)
    life.send("Do 20 steps.")
    lives(life)
    assert "x" not in life.do.done
    assert len(model.summaries) == 2 * len(records(life, "summary")) > 0
    assert model.refused == []
    after = next(ask for ask in model.asked if "<summary>" in first_text(ask))
    assert "You are 'alice'" in first_text(after)
    assert "Do 20 steps." in first_text(after)
    counted = (life.conversation().turns, life.conversation().input_tokens)
    assert counted == (len(model.asked), sum(map(tokens_of, model.asked)))


@pytest.mark.parametrize("tells", [True, False])
def test_a_model_with_a_smaller_context_than_assumed_is_detected(
    tmp_path: Path, tells: bool
) -> None:
    """In the nearest product, teammates are stuck after a prompt that is too long."""
    life, model = tight(
        tmp_path, steps(30), tells=tells, room=ModelSettings(context_tokens=200_000)
    )
    life.send("Do 30 steps.")
    lives(life)
    assert life.do.done == [str(number) for number in range(1, 31)]
    assert "paused" not in life.states
    assert "Do 30 steps." in first_text(model.asked[-1])
    if tells:
        assert len(model.refused) == 1, "what the server told is believed from then on"


@pytest.mark.parametrize("tells", [True, False])
def test_mail_larger_than_the_context_is_read_as_far_as_it_fits(
    tmp_path: Path, tells: bool
) -> None:
    life, model = tight(tmp_path, lambda _: say("Read."), tells=tells)
    life.send("Sum this up: " + "y" * 500_000)
    lives(life)
    assert "paused" not in life.states
    assert "Sum this up: yyy" in words(model.asked[-1])
    assert "bytes more were too long for your context]" in words(model.asked[-1])
    assert len(model.refused) < 12


def test_large_mail_does_not_remove_earlier_knowledge(tmp_path: Path) -> None:
    """The summary covers the earlier conversation; the mail stays beside it."""
    life, model = tight(tmp_path, steps(8))
    life.send("Do 8 steps.")
    lives(life)
    life.send("Sum this up: " + "y" * 500_000)
    lives(life)
    assert "come through 8" in first_text(model.asked[-1])
    assert "Sum this up: yyy" in first_text(model.asked[-1])


def test_results_larger_than_the_context_are_cleared(tmp_path: Path) -> None:
    words = [f"x{number}" for number in range(20)]
    many = use(*[("do", {"word": word}) for word in words])
    life, model = tight(tmp_path, lambda _: many if len(model.asked) == 1 else say("Read."))
    life.send("work")
    lives(life)
    assert "paused" not in life.states
    assert life.do.done == words
    assert model.summaries, "what she knew besides is not lost for them"


def test_a_context_too_small_for_any_message_causes_a_pause_and_not_a_loop(
    tmp_path: Path,
) -> None:
    life, model = tight(tmp_path, lambda _: say("Never."), context_tokens=10)
    life.send("work")
    lives(life, "paused")
    assert model.asked == []
    assert 1 < len(model.refused) < 15
    (told,) = life.lead
    assert told.startswith("alice is paused: the conversation is too long for it (")
    assert "take a model with a larger context" in told
    assert told.endswith("start over with `teamctl spawn alice … --fresh`")
    life.model = Tight(lambda _: say("Done."), context_tokens=CONTEXT, judge=life.judge)
    lives(life)
    assert "work" in words(life.model.asked[-1]), "a larger model continues"


def test_the_demand_for_a_summary_ends_the_request_and_is_not_recorded(
    worked: tuple[Life, Tight],
) -> None:
    _, model = worked
    assert model.summaries
    assert all(DEMAND not in words(ask) for ask in model.asked if not demands(ask))
    assert all(ask.aside == demands(ask) for ask in model.asked), "nobody is told a summary"


@pytest.mark.parametrize(
    ("setting", "server", "used"),
    [
        (None, None, 200_000),
        (None, 1_000_000, 1_000_000),
        (5_000, 1_000_000, 5_000),
        (1_000_000, 5_000, 5_000),
        (300_000, None, 300_000),
    ],
)
def test_the_context_is_the_smallest_value_of_settings_and_server(
    tmp_path: Path, setting: int | None, server: int | None, used: int
) -> None:
    life = Life(tmp_path, say("Done."), room=ModelSettings(context_tokens=setting))

    async def facts(_: str) -> ModelFacts:
        return ModelFacts(context_tokens=server, output_tokens=100)

    async def scenario() -> int:
        async with life.made() as loop:
            await loop.compaction.reply(loop.delivery.deliver)
            return loop.compaction.context_tokens

    life.facts = facts
    life.send("Go.")
    assert asyncio.run(scenario()) == used
    (ask,) = life.model.asked
    assert (ask.max_tokens, ask.effort, ask.facts.output_tokens) == (100, "medium", 100)
