"""The model of a teammate: that of the settings, in wrappers that stack."""

from __future__ import annotations

import json
import os
from functools import cached_property
from typing import TYPE_CHECKING

from teamd.agent.live_output import LiveOutput
from teamd.agent.metered import Metered
from teamd.agent.throttle import Throttle
from teamd.budget.ledger import Ledger
from teamd.models.retry import Retrying, RetryPolicy
from teamd.models.scripted import Scripted
from teamd.process_id import Identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from teamd.agent.build import Environment
    from teamd.agent.conversation.token_counts import CountedRequest
    from teamd.models import Model


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
            tls=claude.shared_tls(),
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
