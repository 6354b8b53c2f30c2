"""The concurrency limit: no more than so many model calls at a time over the whole team."""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Final

from teamd.files import locks

if TYPE_CHECKING:
    from pathlib import Path

    from teamd.models import Ask, Model, Reply

_PAUSE_SECONDS: Final = 0.05


class Throttle:
    """A model that waits until one of the team's slots is free.

    A slot is a lock on a file: the kernel frees it when its holder ends, however it ends.

    Args:
        folder: holds a file for each slot.
        slots: how many calls may be under way.
    """

    def __init__(self, model: Model, folder: Path, slots: int) -> None:
        self._model = model
        self._files = [folder / f"{number}.lock" for number in range(slots)]

    async def reply(self, ask: Ask) -> Reply:
        """Answer once a slot is free; a cancellation gives it back."""
        slot = await self._take_slot()
        try:
            return await self._model.reply(ask)
        finally:
            os.close(slot)

    async def _take_slot(self) -> int:
        while True:
            for file in self._files:
                slot = locks.try_lock(file)
                if slot is not None:
                    return slot
            # There is no waiting for one of several locks; the jitter keeps the queue moving.
            await asyncio.sleep(random.uniform(0.5, 1.5) * _PAUSE_SECONDS)  # noqa: S311 -- no secret
