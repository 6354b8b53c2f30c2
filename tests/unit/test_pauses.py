"""A pause holds a teammate at the end of its step until it is resumed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.approvals.approval import Approval, Kind, Verdict
from teamd.team.roster import Roster
from tests.strict.replies import say, use
from tests.unit.life import Do, Life
from tests.waiting import until

DO = ("do", {"word": "a"})


def pause(life: Life, by: str | None = "user") -> None:
    """Write a pause or its end into the roster, and ring, as the supervisor does."""
    Roster(life.paths).update(
        lambda team: team.with_member(replace(team.get("alice"), paused_by=by))
    )
    life.ring()


def test_mail_waits_during_a_pause_and_is_read_after_it(tmp_path: Path) -> None:
    life = Life(tmp_path, say("Done."))

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=0)
            pause(life)
            await life.rests("paused", calls=0)
            life.send("work")
            life.ring()
            pause(life, None)
            await life.rests(calls=1)

    asyncio.run(scenario())
    assert life.mailbox.peek() == []


def test_a_running_step_is_finished_and_the_next_process_waits_as_well(tmp_path: Path) -> None:
    """Her process may be killed and teamd restarted: the pause is in the roster."""

    async def paused_meanwhile(_: str) -> None:
        pause(life)

    life = Life(tmp_path, use(DO), say("Done."), do=Do(paused_meanwhile))
    life.send("work")
    life.live(calls=1, status="paused")
    assert life.do.done == ["a"]
    life.live(calls=1, status="paused")
    assert life.paths.transcript("alice").read_text().count('"outcome": "paused"') == 1
    pause(life, None)
    life.live(calls=2)
    assert "did a" in str(life.model.last())


def test_a_call_requested_just_before_the_pause_is_not_started(tmp_path: Path) -> None:
    life = Life(tmp_path, use(DO), say("Done."))
    replies = life.model.reply

    async def reply(ask: object) -> object:
        pause(life)
        return await replies(ask)  # type: ignore[arg-type]

    life.model.reply = reply  # type: ignore[method-assign, assignment]
    life.send("work")
    life.live(calls=1, status="paused")
    assert life.do.done == []


@pytest.mark.parametrize("under_way", [True, False])
def test_a_paused_teammate_is_shut_down_without_a_model_call(
    tmp_path: Path, under_way: bool
) -> None:
    life = Life(tmp_path, use(DO), do=Do())
    question = Approval(
        type=Kind.SHUTDOWN, asker="lead", to="alice", content="x", asked=time.time()
    )

    async def paused_meanwhile(_: str) -> None:
        pause(life)

    life.do = Do(paused_meanwhile)
    if under_way:
        life.send("work")

    async def scenario() -> None:
        async with life.lived():
            if not under_way:
                pause(life)
            await life.rests("paused", calls=int(under_way))
            life.send("and this")
            life.approvals.ask(question)
            life.ring()
            await until(lambda: life.approvals.find(question.id).status is Verdict.APPROVED)  # type: ignore[union-attr]

    asyncio.run(scenario())
    assert len(life.model.asked) == int(under_way)


def test_an_interrupt_during_a_pause_ends_the_turn_after_the_resume(tmp_path: Path) -> None:
    async def paused_meanwhile(_: str) -> None:
        pause(life)

    life = Life(tmp_path, use(DO, DO), say("Another thing."), do=Do(paused_meanwhile))
    life.send("work")

    async def scenario() -> None:
        async with life.lived():
            await life.rests("paused", calls=1)
            life.interrupt("Do something else.")
            pause(life, None)
            await life.rests(calls=2)

    asyncio.run(scenario())
    assert "Do something else." in str(life.model.last())
