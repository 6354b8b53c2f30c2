"""Who waits for a slot of the supervisor's when that goes, and who waits no more."""

from __future__ import annotations

import asyncio
import socket

import pytest

from teamd.agent.throttle import CallSlots
from teamd.team.call_slots import CHANNEL


def test_a_call_that_was_cancelled_is_not_failed_when_slots_end() -> None:
    """The supervisor has gone: who still waits fails, so that the process ends."""

    async def scenario() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, CHANNEL)
        with ours, theirs:
            theirs.setblocking(False)
            slots = CallSlots(theirs.fileno())
            first, second = (asyncio.create_task(slots.take(prefix)) for prefix in ("a", "b"))
            await asyncio.sleep(0)
            first.cancel()
            ours.close()
            with pytest.raises(ConnectionResetError, match="grants no more slots"):
                await second
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(scenario())
