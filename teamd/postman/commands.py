"""Commands from one host to another, by request and reply: at most once, and until a deadline.

The sender first asks for the other host's clock, and then gives the deadline by that clock. So a
command that was delayed on its way is recognized as late, however wrong either clock is.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from teamd import clocks
from teamd.control import Asking
from teamd.errors import DeadlinePassed, ExitCode, NotAMessage, TeamError
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.journal import Journal
from teamd.messages import LEAD, is_moment, is_tag, new_id, parse_object
from teamd.postman.connection import BrokerConnection, LostConnection, NoAnswer

# The arguments that are sent, by command. Model, tools, sandbox, limits and working copies follow
# the settings of the other host.
CROSSING: Final[Mapping[str, Mapping[str, type]]] = {
    "spawn": {"name": str, "role": str, "prompt": str},
    "shutdown": {"name": str, "seconds": float, "force": bool},
    "interrupt": {"name": str, "text": str},
    "pause": {"name": str},
    "resume": {"name": str},
}
_ID: Final = re.compile(r"[0-9a-f]{14}-[0-9a-f]{16}")
_LONGEST_TEXT: Final = 100_000  # characters in an answer
_MOST_CLOCK_SECONDS: Final = 5.0  # to ask for the clock


@dataclass(frozen=True, slots=True, kw_only=True)
class FarRequest:
    """A command for another host.

    Attributes:
        command: one of `CROSSING`.
        session: of the postman whose clock the deadline is by.
        deadline: by that clock.
    """

    id: str
    command: str
    arguments: Mapping[str, Any]
    session: str
    deadline: float

    def encode(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode("utf-8", "replace")

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        """Decode an untrusted request; `None` if it only asks for the clock.

        Arguments that are not in `CROSSING` are ignored.

        Raises:
            NotAMessage: it is not a request.
        """
        match parse_object(payload):
            case {"clock": True}:
                return None
            case {
                "id": str(made), "command": str(command), "arguments": dict(given),
                "session": session, "deadline": deadline,
            } if _ID.fullmatch(made) and is_tag(session) and is_moment(deadline):  # fmt: skip
                pass
            case _:
                raise NotAMessage("a request from another host needs an id, a session, a deadline")
        if command not in CROSSING:
            raise NotAMessage(f"no host can ask another for {command!r}")
        arguments = _crossing(CROSSING[command], given)
        return cls(
            id=made, command=command, arguments=arguments, session=session, deadline=float(deadline)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FarAnswer:
    """The answer of another host: a sentence and an exit code."""

    text: str
    exit_code: ExitCode = ExitCode.DONE

    def encode(self) -> bytes:
        said = {"text": self.text, "exit_code": int(self.exit_code)}
        return json.dumps(said, ensure_ascii=False).encode("utf-8", "replace")

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Decode an untrusted answer.

        Raises:
            NotAMessage: it is not an answer.
        """
        match parse_object(payload):
            case {"text": str(text), "exit_code": int(code)} if code in list(ExitCode):
                return cls(text=text[:_LONGEST_TEXT], exit_code=ExitCode(code))
        raise NotAMessage("an answer from another host needs a text and an exit code")


def ask(
    far: FarHosts, host: str, command: str, arguments: Mapping[str, Any], *, seconds: float
) -> FarAnswer:
    """Send a command to another host, and wait for its answer.

    Args:
        far: the other hosts.
        host: the host that executes the command.
        command: one of `CROSSING`.
        arguments: of the command.
        seconds: the time limit for the start of the command and for the answer.

    Raises:
        DeadlinePassed: the host is unreachable and the command was not sent; or no answer came in
            time, and the command will no longer start.
        TeamError: the host gave an invalid answer.
    """
    if (why := far.obstacle(host)) is not None:
        raise _not_asked(host, why)
    return asyncio.run(_ask(far, host, command, arguments, seconds))


def read_clock(payload: bytes) -> tuple[str, float]:
    """Decode another host's untrusted answer about its clock: the session, and the time by it.

    Raises:
        NotAMessage: it is not such an answer.
    """
    match parse_object(payload):
        case {"session": session, "clock": clock} if is_tag(session) and is_moment(clock):
            return session, float(clock)
    raise NotAMessage("an answer from another host needs a session and a clock")


async def _ask(
    far: FarHosts, host: str, command: str, arguments: Mapping[str, Any], seconds: float
) -> FarAnswer:
    subject, until = f"command.{host}.{far.name.lower()}", clocks.elapsed() + seconds
    try:
        async with BrokerConnection.open_any(far.settings) as link:
            limit = min(seconds, _MOST_CLOCK_SECONDS)
            session, clock = read_clock(await link.request(subject, b'{"clock": true}', limit))
            if (left := until - clocks.elapsed()) <= 0:
                raise _unanswered(host, seconds)
            request = FarRequest(
                id=new_id(),
                command=command,
                arguments=arguments,
                session=session,
                deadline=clock + left,
            )
            return FarAnswer.decode(await link.request(subject, request.encode(), left))
    except NoAnswer as error:
        if error.nobody:
            raise _not_asked(host, "its postman does not listen") from error
        raise _unanswered(host, seconds) from error
    except LostConnection as lost:
        raise (
            _not_asked(host, lost.why) if not lost.was_up else _unanswered(host, seconds)
        ) from lost


@dataclass(frozen=True, slots=True)
class Requests:
    """Executes commands of other hosts.

    Attributes:
        paths: the team on this host.
        team: its name.
        name: the name of this host.
        session: of this postman, by whose clock deadlines are.
        allows: returns whether a host may use a command here.
    """

    paths: TeamPaths
    team: str
    name: str
    session: str
    allows: Callable[[str, str], bool]
    journal: Journal

    async def answer(self, host: str, payload: bytes) -> bytes | None:
        """Execute a host's request; return the answer, or `None` if it is not a request.

        Args:
            host: the sender by the subject, which the broker binds to a certificate.
            payload: the untrusted request.
        """
        try:
            request = FarRequest.decode(payload)
        except NotAMessage as error:
            self.journal.warn("no request", host=host, reason=str(error))
            return None
        if request is None:
            return json.dumps({"session": self.session, "clock": clocks.elapsed()}).encode()
        try:
            answer = await self._ask(host, request)
        except TeamError as error:
            answer = FarAnswer(text=error.for_person(), exit_code=ExitCode(error.exit_code))
        facts = {"command": request.command, "id": request.id, "exit_code": int(answer.exit_code)}
        self.journal.note("asked by another host", host=host, text=answer.text, **facts)
        return answer.encode()

    async def _ask(self, host: str, request: FarRequest) -> FarAnswer:
        """Send the request to teamd.

        Raises:
            TeamError: the request is not allowed, too late, or failed.
        """
        what = request.command
        if not self.allows(host, what):
            here = f'its team.toml has no "{host}" in [hosts] allow {what}'
            raise TeamError(f"{self.name} does not let {host} {what} teammates: {here}")
        left = request.deadline - clocks.elapsed()
        if request.session != self.session or left <= 0:
            raise DeadlinePassed(
                f"the {what} came too late to {self.name}, and was not carried out"
            )
        asking = Asking(self.paths, f"{LEAD}@{self.team}@{host}")
        # The host's name makes the key unique among all hosts and local requests.
        key = f"{host}-{request.id}"
        reply = await asking.ask(
            what, request.arguments, key=key, timeout_seconds=left, enough=tuple(ExitCode)
        )
        return FarAnswer(text=reply.text, exit_code=reply.exit_code)


def _not_asked(host: str, why: str) -> DeadlinePassed:
    return DeadlinePassed(f"{host} was not asked: {why}; `teamctl hosts` shows when it is back")


def _unanswered(host: str, seconds: float) -> DeadlinePassed:
    hint = "`teamctl team --hosts` shows whether it was done"
    return DeadlinePassed(f"{host} did not answer within {seconds:g} s; {hint}")


def _crossing(wanted: Mapping[str, type], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the allowed arguments.

    Raises:
        NotAMessage: an argument is missing or has the wrong type.
    """
    found: dict[str, Any] = {}
    for name, kind in wanted.items():
        value = given.get(name)
        number = kind is float and isinstance(value, int) and not isinstance(value, bool)
        if not (isinstance(value, kind) or number):
            raise NotAMessage(f"the request from another host lacks its {name}")
        found[name] = value
    return found
