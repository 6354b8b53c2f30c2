"""Requests to the supervisor from within a teammate's loop, which goes on meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Mapping
from typing import Any, Final

from teamd import control
from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode, TeamError
from teamd.files.paths import TeamPaths

NOT_FROM_HERE: Final = (
    "commands for a teammate on another host are the person's: ask that teammate, or who leads "
    "it there, by mail"
)
_FIRST_PAUSE_SECONDS: Final = 0.005
_LONGEST_PAUSE_SECONDS: Final = 0.1


class Asking:
    """The supervisor, as one teammate asks it."""

    def __init__(self, paths: TeamPaths, sender: str) -> None:
        self._paths = paths
        self._sender = sender

    async def ask(
        self,
        command: str,
        arguments: Mapping[str, Any],
        *,
        key: str,
        timeout_seconds: float = 30.0,
        enough: Container[ExitCode] = (ExitCode.DONE,),
    ) -> ControlReply:
        """Ask the supervisor to run a command, and wait for the answer.

        Args:
            command: as the supervisor knows it.
            arguments: of the command.
            key: the tool call's. A call that is repeated after a crash gets the first answer.
            timeout_seconds: how long to wait.
            enough: an answer with this text is not an error.

        Raises:
            TeamError: it was refused, or there was no answer in time.
        """
        request = ControlRequest.within(
            timeout_seconds, command, arguments=arguments, id=key, sender=self._sender
        )
        found = control.collect(self._paths, request.id)
        if found is None:
            control.submit(self._paths, request)
        pause, until = _FIRST_PAUSE_SECONDS, time.monotonic() + timeout_seconds
        while found is None:
            if time.monotonic() > until:
                raise control.overdue(timeout_seconds)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            found = control.collect(self._paths, request.id)
        if found.exit_code not in enough:
            raise TeamError(found.text)
        return found

    def begin(
        self, command: str, arguments: Mapping[str, Any], *, key: str, seconds: float
    ) -> None:
        """Start a command whose end is reported in another way.

        Raises:
            NoTeamd: teamd does not run.
        """
        request = ControlRequest.within(
            seconds, command, arguments=arguments, id=key, sender=self._sender
        )
        control.submit(self._paths, request, durable=True)
