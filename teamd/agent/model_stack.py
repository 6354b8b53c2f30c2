"""The model of a teammate: that of the settings, in wrappers that stack."""

from __future__ import annotations

import asyncio
import json
import os
import random
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from teamd.agent.metered import Metered
from teamd.budget.ledger import Ledger
from teamd.files import locks
from teamd.files.files import PRIVATE_FILE
from teamd.models.retry import Retrying, RetryPolicy
from teamd.models.scripted import Scripted
from teamd.process_id import Identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from teamd.agent.conversation.token_counts import CountedRequest
    from teamd.agent.environment import Environment
    from teamd.models import Ask, Model, Reply

_PAUSE_SECONDS: Final = 0.05


class ModelStack:
    """Makes models of the settings: asked again on failure, few at a time, within the limits."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._settings = env.settings.model
        self._ledger = Ledger(env.paths.ledger)

    def make(self, known: Sequence[CountedRequest] = (), *, live: bool = False) -> Model:
        """Make one for a conversation: the calls of another say nothing about the next of it.

        Args:
            known: the requests of the conversation so far.
            live: whether a person reads along.
        """
        settings, paths, name = self._settings, self._env.paths, self._env.name
        metered = Metered(
            self._server_model,
            self._ledger,
            name=name,
            process=Identity.own(),
            free=settings.script is not None,
            server=self._server,
            known=known,
        )
        throttle = Throttle(metered, paths.call_slots, settings.concurrent_calls)
        policy = RetryPolicy(
            attempts=settings.attempts,
            longest_seconds=settings.retry_seconds,
            rest_seconds=settings.rest_seconds,
        )
        model = LiveOutput(throttle, paths.partial(name)) if live else throttle
        return Retrying(model, policy, tell=self._note_retry)

    @cached_property
    def _server_model(self) -> Model:
        settings = self._settings
        if settings.script is not None:
            return Scripted(settings.script)
        from teamd.models import claude  # noqa: PLC0415 -- loaded before the fork

        return claude.Claude(
            base_url=settings.base_url,
            key_command=settings.key_command,
            headers=settings.headers,
            timeout_seconds=settings.timeout_seconds,
            cache=settings.cache,
        )

    @property
    def _server(self) -> str:
        """Identify the server: base URL, headers and script, as JSON."""
        settings = self._settings
        url = settings.base_url or os.environ.get("ANTHROPIC_BASE_URL")
        return json.dumps([str(settings.script), url, dict(settings.headers)])

    def _note_retry(self, reason: str, seconds: float) -> None:
        self._env.journal.warn(
            "model call failed, trying again", reason=reason, seconds=round(seconds, 1)
        )


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


@dataclass(slots=True)
class LiveOutput:
    """A model whose words stand in a file while they come: to be read, never taken for the reply.

    The file's first line names the attempt: a reply that broke off is begun anew. It is gone when
    the reply is whole, or has failed.
    """

    model: Model
    path: Path

    async def reply(self, ask: Ask) -> Reply:
        """Answer; where the file cannot be written nobody looks on, and that is all."""
        self._remove()  # an earlier process may have been killed in mid-reply
        if ask.aside:
            return await self.model.reply(ask)
        self._append(f"{os.urandom(8).hex()}\n")
        try:
            return await self.model.reply(replace(ask, heard=self._append))
        finally:
            self._remove()

    def _append(self, text: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with suppress(OSError):
            fd = os.open(self.path, flags, PRIVATE_FILE)
            try:
                os.write(fd, text.encode(errors="replace"))
            finally:
                os.close(fd)

    def _remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()
