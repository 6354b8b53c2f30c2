"""What other hosts ask of this one: carried out by its own teamd, as its settings allow.

A request has been noted as received before it comes here, so a kill in between loses it and never
repeats it. How late it is the far clock tells, see `presence`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from teamd import clocks
from teamd.errors import DeadlinePassed, ExitCode, NotAMessage, TeamError
from teamd.files.paths import TeamPaths
from teamd.hosts.requests import FarAnswer, FarRequest
from teamd.journal import Journal
from teamd.messages import LEAD
from teamd.postman.presence import BEAT_SECONDS

_CLOCK_SECONDS: Final = 3 * BEAT_SECONDS  # within which each end has heard the other's echo
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Commands:
    """Carries out what other hosts ask for.

    Attributes:
        paths: the team of this host.
        team: its name.
        name: of this host.
        allows: says whether a host may ask for a command here.
        left: returns the seconds until a moment by the clock of another host, in a boot of it; 0
            where that has passed, or may have, `None` while that clock is not known.
    """

    paths: TeamPaths
    team: str
    name: str
    allows: Callable[[str, str], bool]
    left: Callable[[str, str, float], float | None]
    journal: Journal

    async def carry_out(self, host: str, line: Mapping[str, Any]) -> FarAnswer | None:
        """Do what a host asks for; return the answer, or `None` where it asks for nothing.

        Args:
            host: who asks, by the subject, which the broker binds to a certificate.
            line: as it came; read here, and never believed.
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
        """Return the seconds that are left; a postman that has just begun waits for a few beats."""
        until = clocks.elapsed() + _CLOCK_SECONDS
        while (left := self.left(host, request.boot, request.deadline)) is None:
            if clocks.elapsed() > until:
                return 0.0
            await asyncio.sleep(_LOOK_SECONDS)
        return left

    async def _ask(self, host: str, request: FarRequest) -> FarAnswer:
        """Have it done by teamd.

        Raises:
            TeamError: it is not allowed, too late or failed.
        """
        what = request.command
        if not self.allows(host, what):
            here = f'its team.toml has no "{host}" in [hosts] allow {what}'
            raise TeamError(f"{self.name} does not let {host} {what} teammates: {here}")
        from teamd.tools.asking import Asking  # noqa: PLC0415 -- loads pydantic, of 8 MB

        left = await self._left(host, request)  # now: the import takes a while
        if left <= 0:
            raise DeadlinePassed(f"the {what} came too late to {self.name}, and was not done")
        asking = Asking(self.paths, f"{LEAD}@{self.team}@{host}")
        # With the host's name: no other host, and nobody here, has made that id.
        key = f"{host}-{request.id}"
        reply = await asking.ask(
            what, request.arguments, key=key, timeout_seconds=left, enough=tuple(ExitCode)
        )
        return FarAnswer(id=request.id, text=reply.text, exit_code=reply.exit_code)
