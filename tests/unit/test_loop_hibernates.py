"""A loop ends to hibernate once it has nothing left to do or to keep in its process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from teamd.messages import Message
from teamd.settings.schema import Limits, Supervision
from teamd.team.states import Status
from tests.strict.replies import say, use
from tests.unit.life import Life, Play, enrol
from tests.waiting import until

NOTHING = say("Done.")
SECONDS = 0.1
_LONGER_SECONDS = 0.5


def sleepy(folder: Path, play: Play = NOTHING) -> Life:
    life = Life(folder, play)
    supervision = Supervision(hibernate_seconds=SECONDS)
    life.settings = replace(life.settings, supervision=supervision)
    return life


def ended(life: Life, *, calls: int) -> bool:
    """Return whether her loop has returned some time after she became idle."""

    async def scenario() -> bool:
        async with life.lived() as task:
            await life.rests(calls=calls)
            done, _ = await asyncio.wait([task], timeout=_LONGER_SECONDS)
            return bool(done)

    return asyncio.run(scenario())


def test_an_idle_teammate_hibernates_after_the_time_in_the_settings(tmp_path: Path) -> None:
    life = sleepy(tmp_path)
    life.send("work")
    assert ended(life, calls=1)
    assert life.states == ["working", "idle"]


def test_no_teammate_hibernates_if_the_settings_say_never(tmp_path: Path) -> None:
    life = sleepy(tmp_path)
    life.settings = replace(life.settings, supervision=Supervision(hibernate_seconds=0))
    life.send("work")
    assert not ended(life, calls=1)


def test_a_teammate_with_a_running_job_stays_until_it_is_over(tmp_path: Path) -> None:
    life = sleepy(tmp_path)
    life.busy = True

    async def scenario() -> None:
        async with life.lived() as task:
            await life.rests(calls=1)
            await asyncio.wait([task], timeout=_LONGER_SECONDS)
            assert not task.done()
            life.busy = False
            life.ring()
            await until(task.done, what="she hibernates")

    life.send("work")
    asyncio.run(scenario())


def test_a_teammate_with_held_mail_stays_awake(tmp_path: Path) -> None:
    """That mail would wake it, be held again, and let it hibernate, in an endless loop."""
    life = sleepy(tmp_path)
    enrol(life.paths, bob=Status.IDLE)
    life.settings = replace(life.settings, limits=Limits(talk_wakes=1))
    for number in range(2):
        life.post.send(Message(sender="bob", to="alice", content=f"Hello {number}."))
        assert ended(life, calls=1) == (number == 0)
    assert life.mailbox.waiting()


def test_a_teammate_that_owes_a_notice_stays_until_it_is_sent(tmp_path: Path) -> None:
    """No other process would send it."""
    life = sleepy(tmp_path, use(("do", {})))
    life.calls = 1  # the lead is then told that there is more to do
    inbox = life.paths.inbox("lead")
    inbox.rename(inbox.with_suffix(".kept"))
    inbox.mkdir()
    life.send("work")
    assert not ended(life, calls=1)
    inbox.rmdir()
    assert ended(life, calls=1)
    assert "stopped after 1 model calls" in life.lead[0]
