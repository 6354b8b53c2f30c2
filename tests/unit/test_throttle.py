"""The turnstile: so many model calls at a time over all processes of a team, and no more."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from teamd.agent.model_stack import Throttle
from teamd.files import locks
from teamd.models import Ask, Reply, TransientError
from tests.strict.replies import say
from tests.unit.life import Player, replied
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
ASK = Ask(model="claude-sonnet-5-5", system="x", tools=[], messages=[MESSAGE], max_tokens=9)


class Slow:
    """A model that answers once it is let go."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.go = asyncio.Event()

    async def reply(self, ask: Ask) -> Reply:  # noqa: ARG002 -- the protocol's
        """Wait and answer."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.go.wait()
        self.inside -= 1
        return replied(say("Done."))


def test_no_more_than_so_many_calls_are_under_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        model = Slow()
        # Each teammate has a turnstile of its own; what they share is the folder.
        calls = [asyncio.create_task(Throttle(model, tmp_path, 2).reply(ASK)) for _ in range(6)]
        await until(lambda: model.inside == 2)
        model.go.set()
        replies = await asyncio.gather(*calls)
        assert [reply.text for reply in replies] == ["Done."] * 6
        assert model.most == 2

    asyncio.run(scenario())


def test_a_place_that_another_process_holds_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        player = Player(say("Done."))
        held = locks.try_lock(tmp_path / "0.lock")
        assert held is not None
        call = asyncio.create_task(Throttle(player, tmp_path, 1).reply(ASK))
        done, _ = await asyncio.wait([call], timeout=0.3)
        assert (done, player.asked) == (set(), [])
        os.close(held)
        assert (await call).text == "Done."

    asyncio.run(scenario())


def test_a_failure_and_a_cancellation_give_the_place_back(tmp_path: Path) -> None:
    """A place that stays taken would in the end stop the whole team."""

    async def scenario() -> None:
        with pytest.raises(TransientError):
            await Throttle(Player(TransientError("busy")), tmp_path, 1).reply(ASK)
        model = Slow()
        call = asyncio.create_task(Throttle(model, tmp_path, 1).reply(ASK))
        await until(lambda: model.inside)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        reply = await Throttle(Player(say("Done.")), tmp_path, 1).reply(ASK)
        assert reply.text == "Done."

    asyncio.run(scenario())
