"""An interrupt ends the running turn, once, and its text is read next, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from teamd.agent.conversation.prompts import BROKEN_OFF_CALL
from teamd.messages import INTERRUPT_TYPE, Message
from teamd.models import LimitError, UnusableError
from teamd.tools import Result
from teamd.transcript.records import Opened
from tests.strict.replies import say, use
from tests.unit.life import SYSTEM, Do, Life, replied
from tests.waiting import until

DO = ("do", {"word": "a"})
MORE = ("do", {"word": "b"})


def texts(life: Life, request: int = -1) -> str:
    """Return the last user message of a request as text."""
    return str(life.model.last(request))


def endless(folder: Path, *plays: object, calls: int = 1) -> tuple[Life, asyncio.Event]:
    """Return an agent whose tool call runs until it is cancelled, and an event for its start."""
    begun = asyncio.Event()

    async def never(_: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    life = Life(folder, use(*[DO, MORE][:calls]), *plays, do=Do(never))  # type: ignore[arg-type]
    life.send("work")
    return life, begun


def test_an_interrupt_ends_the_call_and_each_call_has_a_result(tmp_path: Path) -> None:
    life, begun = endless(tmp_path, calls=2)

    async def scenario() -> None:
        async with life.lived():
            await begun.wait()
            life.interrupt("Do something else.")
            await life.rests(calls=2)

    asyncio.run(scenario())
    results = [block for block in life.model.last() if block["type"] == "tool_result"]
    told = [block["content"][0]["text"] for block in results]
    assert told == [BROKEN_OFF_CALL.format(by="lead")] * 2
    assert all(block["is_error"] for block in results)
    assert 'type="interrupt">\\nDo something else.' in texts(life)
    assert life.do.done == []


def test_without_a_text_the_interrupted_teammate_is_idle_and_still_reads_mail(
    tmp_path: Path,
) -> None:
    life, begun = endless(tmp_path)

    async def scenario() -> None:
        async with life.lived():
            await begun.wait()
            life.interrupt()
            await life.rests(calls=1)
            life.send("What now?")
            await life.rests(calls=2)

    asyncio.run(scenario())
    assert "What now?" in texts(life)
    assert 'type="interrupt"' not in texts(life)
    assert life.mailbox.peek() == []


def test_a_late_signal_does_not_end_the_turn_that_reads_the_text(tmp_path: Path) -> None:
    """Mail may be read before the signal arrives: a signal without new mail ends nothing."""
    life, begun = endless(tmp_path, say("Another thing."))

    async def scenario() -> None:
        async with life.lived():
            await begun.wait()
            life.interrupt("Do something else.")
            await life.rests(calls=2)
            life.signal()
            life.send("Go on.")
            life.signal()
            await life.rests(calls=3)

    asyncio.run(scenario())
    assert "Go on." in texts(life)


def test_an_interrupt_found_between_two_steps_ends_the_turn_without_a_signal(
    tmp_path: Path,
) -> None:
    async def order(word: str) -> None:
        if word == "a":
            life.send("Stop that.", type=INTERRUPT_TYPE)

    life = Life(tmp_path, use(DO), say("Stopped."), do=Do(order))
    life.send("work")
    life.live(calls=2)
    assert "did a" in texts(life)
    assert "Stop that." in texts(life)
    ended = life.paths.transcript("alice").read_text().count('"outcome": "interrupted"')
    assert ended == 1


@pytest.mark.parametrize("text", ["Do something else.", ""])
@pytest.mark.parametrize("step", ["in the inbox", "answered", "broken off", "in the conversation"])
def test_the_process_that_replaces_a_killed_one_finds_the_interrupt(
    tmp_path: Path, text: str, step: str
) -> None:
    """The turn does not continue unchanged, and the text is read once."""
    life = Life(tmp_path, say("Another thing."))
    talk = life.conversation()
    talk.open(Opened(system=SYSTEM))
    talk.deliver([Message(sender="lead", to="alice", content="work")])
    reply = replied(use(DO))
    talk.add_reply(reply)
    life.judge.remember(reply)
    order = life.send(text, type=INTERRUPT_TYPE)
    if step != "in the inbox":
        life.mailbox.take()
        for call in talk.unanswered:
            talk.add_result(call, Result(text="interrupted", is_error=True))
    if step not in ("in the inbox", "answered"):
        talk.end_turn("interrupted", "")
    if step == "in the conversation":
        talk.deliver([order])
    talk.settle()
    if text:
        life.live(calls=1)
        assert texts(life).count(text) == 1
    else:
        life.live(calls=0)
    assert life.do.done == []
    assert life.mailbox.peek() == []


@pytest.mark.parametrize(
    "trouble", [UnusableError("no key"), LimitError("too much", "k", lambda: False)]
)
def test_an_interrupt_ends_a_paused_turn(tmp_path: Path, trouble: Exception) -> None:
    life = Life(tmp_path, trouble, say("Another thing."))
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests("paused", calls=1)
            life.interrupt("Do something else.")
            await life.rests(calls=2)

    asyncio.run(scenario())
    assert "Do something else." in texts(life)


def test_an_interrupt_is_found_after_a_flood_of_mail(tmp_path: Path) -> None:
    """An interrupt ends the turn at once, even behind more mail than one delivery takes."""
    life, begun = endless(tmp_path, say("I read."), say("I read it."))

    async def scenario() -> None:
        async with life.lived():
            await begun.wait()
            for number in range(150):
                life.post.send(Message(sender="lead", to="alice", content=f"mail {number}"))
            life.interrupt("Stop that.")
            await until(lambda: life.states[-1:] == ["idle"] and not life.mailbox.peek())

    asyncio.run(scenario())
    assert str(life.model.asked[-1].messages).count("Stop that.") == 1
    assert str(life.model.asked[-1].messages).count("mail 149") == 1


def test_an_interrupt_while_idle_does_not_end_the_turn_that_reads_it(tmp_path: Path) -> None:
    life = Life(tmp_path, say("I do."))

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=0)
            life.interrupt("Do something.")
            await life.rests(calls=1)

    asyncio.run(scenario())
    assert "Do something." in texts(life)
