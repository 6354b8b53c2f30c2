"""The request `shutdown`: whom it means, and one answer about all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from teamd.control import ControlReply
from teamd.errors import ExitCode, NotAMessage, StoreError
from teamd.protocol import USER
from teamd.states import Status
from teamd.supervisor.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from teamd.control import ControlRequest
    from teamd.supervisor.handshakes import Handshakes
    from teamd.supervisor.register import Register

    Reply = Callable[[ControlReply], None]

LONGEST_SECONDS: Final = 86_400
# From what went well to what needs somebody most: who rejected still runs.
_WORSE: Final = (ExitCode.DONE, ExitCode.DEADLINE, ExitCode.REFUSED)


class Shutdowns:
    """Carries out requests to shut down."""

    def __init__(self, handshakes: Handshakes, register: Register) -> None:
        self._handshakes = handshakes
        self._register = register

    def answer(self, request: ControlRequest, reply: Reply) -> None:
        """Shut down whom it names, all at the same time; `reply` is called when each has ended.

        Raises:
            TeamError: there is no such teammate, or the request is none.
        """
        names = self._who(request.arguments)
        seconds = _seconds(request.arguments)
        force = request.arguments.get("force") is True
        asker = self._register.team.person if request.sender == USER else request.sender
        outcomes: dict[str, Outcome] = {}

        def note(outcome: Outcome) -> None:
            outcomes[outcome.name] = outcome
            if len(outcomes) == len(names):
                reply(_answer([outcomes[name] for name in names]))

        for name in names:
            if force:
                self._handshakes.force(name, then=note)
                continue
            try:
                self._handshakes.ask(
                    name, asker=asker, seconds=seconds, then=note, by_mail=request.by_mail
                )
            except StoreError as error:
                text = f"{name} could not be asked: {error}"
                if request.by_mail:
                    self._register.tell_lead(text, to=asker, key=request.id)
                note(Outcome(name=name, text=text, exit_code=ExitCode.REFUSED))
        if not names:
            reply(ControlReply(text="nobody is running"))

    def _who(self, arguments: Mapping[str, Any]) -> list[str]:
        team = self._register.team
        if arguments.get("all") is True:
            return [m.name for m in team.members if m.status is not Status.SHUTDOWN]
        name = arguments.get("name")
        if not isinstance(name, str) or not name.strip():
            raise NotAMessage("a name is needed, as a text that is not empty")
        return [team.get(name).name]


def _answer(outcomes: list[Outcome]) -> ControlReply:
    worst = max((outcome.exit_code for outcome in outcomes), key=_WORSE.index)
    members = [outcome.to_json() for outcome in outcomes]
    text = "\n".join(outcome.text for outcome in outcomes)
    return ControlReply(text=text, exit_code=worst, data={"members": members})


def _seconds(arguments: Mapping[str, Any]) -> float:
    value = arguments.get("seconds")
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LONGEST_SECONDS
    ):
        raise NotAMessage(f"a shutdown takes 0 to {LONGEST_SECONDS} seconds")
    return float(value)
