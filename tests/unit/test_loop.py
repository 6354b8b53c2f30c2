"""The loop: mail in, model, tools, transcript, and idling."""

from __future__ import annotations

import asyncio
import select
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from teamd import clocks
from teamd.agent.wakeup import SupervisorGone
from teamd.masking import MASK
from teamd.messages import Message
from teamd.models import LimitError, UnusableError
from teamd.transcript.records import Opened
from tests.strict.replies import say, use
from tests.unit.life import MODEL, NEVER_SECONDS, Do, Life
from tests.waiting import until


def texts(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")


def results(blocks: list[dict[str, Any]]) -> list[str]:
    found = [block for block in blocks if block["type"] == "tool_result"]
    return [block["content"][0]["text"] for block in found]


def silent(reader: int) -> bool:
    return not select.select([reader], [], [], 0)[0]


def test_mail_is_answered_and_then_the_teammate_is_idle(tmp_path: Path) -> None:
    life = Life(tmp_path, say("Done."))
    life.send("count the files")
    life.live(calls=1)
    assert "count the files" in texts(life.model.last())
    assert life.states == ["working", "idle"]
    assert not life.mailbox.waiting()
    assert life.conversation().turns == 1
    assert life.lead == []


def test_mail_is_delivered_without_secrets_and_recognized_when_it_comes_again(
    tmp_path: Path,
) -> None:
    """For any sender: otherwise a secret would reach the model's server and the transcript."""
    life = Life(tmp_path, say("Done."))
    life.mask.learn("sk-12345")
    for _ in range(2):  # as after a kill between two steps
        life.send("the key: sk-12345", id="1", extra={"summary": "about sk-12345", "n": 1})
        life.live(calls=1)
    assert f"the key: {MASK}" in texts(life.model.last())
    assert f'summary="about {MASK}"' in texts(life.model.last())
    assert "sk-12345" not in life.paths.transcript("alice").read_text()


def test_a_key_from_a_command_is_known_before_mail_is_read(tmp_path: Path) -> None:
    """The person is not asked to unlock it for a teammate that has nothing to do."""
    life = Life(tmp_path, say("Done."), say("Done."))
    asked: list[str] = []

    async def learn_key() -> None:
        asked.append("key")
        life.mask.learn("sk-12345")

    life.learn_key = learn_key
    life.live(calls=0)
    assert asked == []
    life.send("sk-12345")
    life.send("and again")
    life.live(calls=1)
    assert asked == ["key"]
    assert "sk-12345" not in life.paths.transcript("alice").read_text()


def test_an_idle_loop_makes_no_request_and_reports_once(tmp_path: Path) -> None:
    """Idle teammates must not cost tokens, nor fill the supervisor's inbox."""
    life = Life(tmp_path)

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=0)
            for _ in range(3):
                assert life.bell is not None
                life.ring()
                await until(partial(silent, life.bell[0]))
            life.send("now")
            await life.rests(calls=1)

    asyncio.run(scenario())
    assert life.states == ["idle", "working", "idle"]


def test_mail_that_arrives_during_a_call_is_in_the_very_next_request(tmp_path: Path) -> None:
    """The nearest product delivers it at the end of a long turn: its users' chief complaint."""

    async def mail(_: str) -> None:
        life.send("stop, the plan has changed")

    life = Life(tmp_path, use(("do", {"word": "x"})), say("Stopped."), do=Do(mail))
    life.send("work")
    life.live(calls=2)
    assert [block["type"] for block in life.model.last()] == ["tool_result", "text"]
    assert "the plan has changed" in texts(life.model.last())


def test_parallel_calls_are_all_answered_in_order(tmp_path: Path) -> None:
    calls = [("do", {"word": "a"}), ("missing", {}), ("do", {"wrod": "b"}), ("do", {"word": "c"})]
    life = Life(tmp_path, use(*calls), say("Done."))
    life.send("work")
    life.live(calls=2)
    first, second, third, fourth = results(life.model.last())
    assert (first, fourth) == ("did a", "did c")
    assert "no tool named 'missing'" in second
    assert "wrod" in third
    assert life.do.done == ["a", "c"]
    flags = [block["is_error"] for block in life.model.last()]
    assert flags == [False, True, True, False]


def test_one_wake_makes_at_most_fifty_calls_and_then_the_lead_is_informed(
    tmp_path: Path,
) -> None:
    """An endless loop would burn money; silence about it would look like work."""
    words = [f"x{number}" for number in range(50)]
    life = Life(tmp_path, *[use(("do", {"word": word})) for word in words], say("At last."))
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=50)
            (told,) = life.lead
            assert "alice stopped after 50 model calls" in told
            assert life.do.done == words
            life.send("go on")
            await life.rests(calls=51)

    asyncio.run(scenario())
    assert results(life.model.last()) == ["did x49"]
    assert "go on" in texts(life.model.last())


@pytest.mark.parametrize("later", [False, True])
def test_the_same_id_twice_is_delivered_once(tmp_path: Path, later: bool) -> None:
    """A sender that does not know whether its mail arrived sends it again with the same id."""
    life = Life(tmp_path)
    life.send("deploy it", id="1")

    async def scenario() -> None:
        async with life.lived():
            if later:
                await life.rests(calls=1)
            life.send("deploy it", id="1")
            life.send("and this", id="2")
            await life.rests(calls=2 if later else 1)

    asyncio.run(scenario())
    said = str(life.model.asked[-1].messages)
    assert said.count("deploy it") == 1
    assert said.count("and this") == 1


def test_the_same_id_with_different_text_is_a_different_message(tmp_path: Path) -> None:
    """A foreign program may reuse an id; no message may be lost, before or after it was read."""
    life = Life(tmp_path)
    for count, words in enumerate((["one", "two"], ["three"]), start=1):
        for text in words:
            life.mailbox.put(Message(id="1", sender="lead", to="alice", content=text))
        life.live(calls=count)
    said = str(life.model.asked[-1].messages)
    assert [said.count(text) for text in ("one", "two", "three")] == [1, 1, 1]


def test_a_fresh_start_forgets_the_conversation_and_takes_the_new_role(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.send("the old task")
    life.live(calls=1)
    life.opening = Opened(system="You are 'alice', role: writer.")
    life.model_name = "other"
    life.send("and more", id="1", extra={"fresh": True})  # mail of another program: no spawn
    life.live(calls=2)
    assert life.model.asked[-1].system.endswith("role: tester."), "frozen in a conversation"
    assert life.model.asked[-1].model == "other", "asked at each call"
    life.send("the new task", extra={"prompt": True, "fresh": True})
    life.send("and more", id="1")
    life.live(calls=3)
    asked = life.model.asked[-1]
    assert asked.system == "You are 'alice', role: writer."
    assert len(asked.messages) == 1
    assert "the new task" in texts(life.model.last())
    assert "and more" not in texts(life.model.last())


def test_a_teammate_is_paused_until_the_next_mail_and_the_lead_is_informed_once(
    tmp_path: Path,
) -> None:
    broken = UnusableError("no key; set one")
    life = Life(tmp_path, broken, broken, say("Thanks."), UnusableError("no key; set one"))
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests("paused", calls=1)
            life.send("try again")
            await life.rests("paused", calls=2)
            assert life.lead == ["alice is paused: no key; set one"]
            life.send("now it is mended")
            await life.rests(calls=3)
            life.send("more")
            await life.rests("paused", calls=4)

    asyncio.run(scenario())
    said = texts(life.model.last(2))
    assert [word in said for word in ("work", "try again", "now it is mended")] == [True] * 3
    assert len(life.lead) == 2, "it worked in between, so this is news"


def test_the_next_process_does_not_inform_the_lead_again(tmp_path: Path) -> None:
    """Otherwise every `teamd restart` would report a known pause; a new pause is reported."""
    life = Life(tmp_path, *map(UnusableError, ("no key", "no key", "no such model")), say("Done."))
    life.send("work")
    for told in (1, 1, 2):
        life.live(calls=len(life.model.asked) + 1, status="paused")
        assert len(life.lead) == told
    life.live(calls=4)


def test_a_pause_with_a_time_ends_without_mail(tmp_path: Path) -> None:
    life = Life(tmp_path, UnusableError("overloaded", again_in_seconds=0.01), say("Done."))
    life.send("work")
    life.live(calls=2)
    assert life.states == ["working", "paused", "working", "idle"]


@pytest.mark.parametrize(
    "error",
    [
        UnusableError("limit", again_in_seconds=NEVER_SECONDS, by_server=True),
        LimitError("limits.team_usd is reached: 1 of 1", "limits.team_usd", lambda: False),
    ],
    ids=["a time of the server", "a limit"],
)
def test_mail_does_not_end_a_pause_at_a_limit(tmp_path: Path, error: UnusableError) -> None:
    """It stays in the inbox, and no call is tried."""
    life = Life(tmp_path, error, say("Done."))
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests("paused", calls=1)
            life.send("Are you there?")
            # The ring was read, since the pipe is empty again.
            await until(lambda: life.bell is not None and silent(life.bell[0]))
            assert len(life.model.asked) == 1

    asyncio.run(scenario())
    assert life.mailbox.queued() == 1
    assert life.lead == [f"alice is paused: {error}"]


def test_a_pause_ends_on_time_even_if_the_machine_was_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop's clock stops during a suspend."""
    life = Life(tmp_path, UnusableError("limit", NEVER_SECONDS, by_server=True), say("Done."))
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests("paused", calls=1)
            read, asleep = time.clock_gettime, {clocks._THROUGH_SUSPEND: NEVER_SECONDS}
            monkeypatch.setattr(time, "clock_gettime", lambda c: read(c) + asleep.get(c, 0.0))
            life.ring()  # as the periodic look does
            await life.rests(calls=2)

    asyncio.run(scenario())


def test_a_pause_outlives_the_process(tmp_path: Path) -> None:
    """Its work is not forgotten when the person corrects the key and restarts teamd."""
    life = Life(tmp_path, UnusableError("no key; set one"), say("Done."))
    life.send("work")
    life.live(calls=1, status="paused")
    life.live(calls=2)
    assert life.model.asked[0].messages == life.model.asked[1].messages
    assert life.model.asked[1].model == MODEL


def test_a_teammate_ends_when_its_supervisor_is_gone(tmp_path: Path) -> None:
    life = Life(tmp_path)

    async def scenario() -> None:
        async with life.lived() as task:
            await life.rests(calls=0)
            life.hang_up()
            with pytest.raises(SupervisorGone):
                await asyncio.wait_for(task, timeout=20)

    asyncio.run(scenario())
