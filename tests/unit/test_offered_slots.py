"""A slot that comes with the bell, and for which no request comes, is back before anything long."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from teamd.team.call_slots import SlotRelease
from tests.strict.replies import say, use
from tests.unit.life import Do, Life
from tests.unit.test_pauses import pause
from tests.waiting import until

BACK = SlotRelease(number=4).encode()


def said(life: Life) -> bytes | None:
    """What she has said to the supervisor about slots."""
    life.slots.setblocking(False)
    try:
        return os.read(life.slots.fileno(), 64)
    except BlockingIOError:
        return None


def test_one_that_is_paused_gives_back_what_she_is_offered(tmp_path: Path) -> None:
    """Others would wait for it as long as she does."""
    life = Life(tmp_path)

    async def scenario() -> None:
        async with life.lived():
            await life.rests(calls=0)
            pause(life)
            await life.rests("paused", calls=0)
            life._loop.env.slots._offered = 4
            life.send("work")
            await until(lambda: said(life) == BACK)
            assert life.model.asked == []

    asyncio.run(scenario())


def test_one_that_runs_a_command_gives_back_what_she_is_offered(tmp_path: Path) -> None:
    """It came too late for her last request, and the next one may be hours away."""
    heard: list[bytes | None] = []

    async def offer(_: str) -> None:
        life._loop.env.slots._offered = 4

    async def look(_: str) -> None:
        heard.append(said(life))

    life = Life(tmp_path, use(("do", {"word": "a"})), use(("do", {"word": "b"})), say("Done."))
    life.do = Do(lambda word: offer(word) if word == "a" else look(word))
    life.send("work")
    life.live(calls=3)
    assert heard == [BACK]
