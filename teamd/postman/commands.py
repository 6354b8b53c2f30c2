"""Commands from other hosts, executed by this host's teamd if its settings allow them.

A request is recorded as received before it gets here, so a kill in between loses it and never
repeats it. Its deadline is checked by the other host's clock, see `presence`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from teamd import clocks
from teamd.control import Asking
from teamd.errors import DeadlinePassed, ExitCode, NotAMessage, TeamError
from teamd.files.paths import TeamPaths
from teamd.hosts.requests import FarAnswer, FarRequest
from teamd.journal import Journal
from teamd.messages import LEAD
from teamd.postman.presence import BEAT_SECONDS

_CLOCK_SECONDS: Final = 3 * BEAT_SECONDS  # after which each side has heard the other's echo
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Commands:
    """Executes commands of other hosts.

    Attributes:
        paths: the team on this host.
        team: its name.
        name: the name of this host.
        allows: returns whether a host may use a command here.
        left: given a host, its boot and a time by its clock, returns the seconds until then; 0 if
            the time has passed or may have passed, `None` while that clock is unknown.
    """

    paths: TeamPaths
    team: str
    name: str
    allows: Callable[[str, str], bool]
    left: Callable[[str, str, float], float | None]
    journal: Journal

    async def carry_out(self, host: str, line: Mapping[str, Any]) -> FarAnswer | None:
        """Execute a host's request; return the answer, or `None` if the line is not a request.

        Args:
            host: the sender by the subject, which the broker binds to a certificate.
            line: the untrusted request.
        """
        try:
            request = FarRequest.decode(line)
        except NotAMessage as error:
            self.journal.warn("no request", host=host, reason=str(error))
            return None
        try:
            answer = await self._ask(host, request)
        except TeamError as error:
            code = ExitCode(error.exit_code)
            answer = FarAnswer(id=request.id, text=error.for_person(), exit_code=code)
        facts = {"command": request.command, "id": request.id, "exit_code": int(answer.exit_code)}
        self.journal.note("asked by another host", host=host, text=answer.text, **facts)
        return answer

    async def _left(self, host: str, request: FarRequest) -> float:
        """Return the seconds until the deadline.

        A new postman waits a few beats to learn the clock.
        """
        until = clocks.elapsed() + _CLOCK_SECONDS
        while (left := self.left(host, request.boot, request.deadline)) is None:
            if clocks.elapsed() > until:
                return 0.0
            await asyncio.sleep(_LOOK_SECONDS)
        return left

    async def _ask(self, host: str, request: FarRequest) -> FarAnswer:
        """Send the request to teamd.

        Raises:
            TeamError: the request is not allowed, too late, or failed.
        """
        what = request.command
        if not self.allows(host, what):
            here = f'its team.toml has no "{host}" in [hosts] allow {what}'
            raise TeamError(f"{self.name} does not let {host} {what} teammates: {here}")
        left = await self._left(host, request)
        if left <= 0:
            raise DeadlinePassed(
                f"the {what} came too late to {self.name}, and was not carried out"
            )
        asking = Asking(self.paths, f"{LEAD}@{self.team}@{host}")
        # The host's name makes the key unique among all hosts and local requests.
        key = f"{host}-{request.id}"
        reply = await asking.ask(
            what, request.arguments, key=key, timeout_seconds=left, enough=tuple(ExitCode)
        )
        return FarAnswer(id=request.id, text=reply.text, exit_code=reply.exit_code)
