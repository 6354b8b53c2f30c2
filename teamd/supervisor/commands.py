"""What the supervisor does on request: spawn, shutdown, resume, reload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.control import ControlReply
from teamd.errors import NotAMessage, TeamError
from teamd.protocol import LEAD
from teamd.states import Status
from teamd.supervisor.newcomers import Newcomer, model_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.control import ControlRequest
    from teamd.journal import Journal
    from teamd.supervisor.newcomers import Reloaded
    from teamd.supervisor.register import Register
    from teamd.supervisor.resuming import Resuming
    from teamd.supervisor.shutdowns import Shutdowns
    from teamd.supervisor.spawning import Spawning
    from teamd.supervisor.teammates import Teammates

    Reply = Callable[[ControlReply], None]


class Commands:
    """Carries out requests.

    Args:
        caution: a sentence that whoever spawns should read, such as that there is no key.
        reload: reads the settings again.
    """

    def __init__(
        self,
        *,
        teammates: Teammates,
        register: Register,
        spawning: Spawning,
        shutdowns: Shutdowns,
        resuming: Resuming,
        journal: Journal,
        caution: Callable[[], str | None],
        reload: Callable[[], Reloaded],
    ) -> None:
        self._teammates = teammates
        self._register = register
        self._spawning = spawning
        self._resuming = resuming
        self._journal = journal
        self._caution = caution
        self._reload = reload
        self._known = {
            "spawn": self._answer_spawn,
            "lead": self._answer_lead,
            "interrupt": self._answer_interrupt,
            "shutdown": shutdowns.answer,
            "resume": self._answer_resume,
            "reload": self._answer_reload,
        }

    def carry_out(self, request: ControlRequest, reply: Reply) -> None:
        """Do what is asked; `reply` is called once, now or when it is done.

        Raises:
            TeamError: it is refused, or failed.
        """
        command = self._known.get(request.command)
        if command is None:
            known = ", ".join(self._known)
            raise NotAMessage(f"teamd knows no request {request.command!r}; it knows: {known}")
        command(request, reply)

    def _answer_spawn(self, request: ControlRequest, reply: Reply) -> None:
        leads = request.sender.partition("@")[0] == LEAD  # an agent, here or of another team
        sender = request.sender if leads else self._register.team.person
        member = self._spawning.spawn(Newcomer.of(request.arguments), request.id, sender=sender)
        if member.status is Status.FAILED:
            raise TeamError(f"{member.name} could not be started: {member.reason}")
        caution = self._caution() or member.reason  # such as: no process could be forked yet
        data = {"member": member.encode(), "message_id": request.id, "warning": caution}
        reply(ControlReply(text=f"{member.name} ({member.role}) is at work", data=data))

    def _answer_lead(self, request: ControlRequest, reply: Reply) -> None:
        fresh = request.arguments.get("fresh") is True
        member = self._spawning.lead(fresh=fresh, model=model_of(request.arguments))
        data = {"member": member.encode(), "warning": self._caution() or member.reason}
        reply(ControlReply(text="lead is there", data=data))

    def _answer_interrupt(self, request: ControlRequest, reply: Reply) -> None:
        member = self._register.team.get(text_of(request.arguments, "name"))
        if member.status is not Status.WORKING:
            raise TeamError(f"{member.name} is {member.status}; there is nothing to interrupt")
        self._teammates.interrupt(member.name)
        reply(ControlReply(text=f"{member.name} is interrupted"))

    def _answer_resume(self, request: ControlRequest, reply: Reply) -> None:
        name = self._register.team.get(text_of(request.arguments, "name")).name
        self._reload()
        self._resuming.resume(name)
        self._journal.note("resumed", name=name)
        reply(ControlReply(text=f"{name} goes on"))

    def _answer_reload(self, request: ControlRequest, reply: Reply) -> None:  # noqa: ARG002 -- no arguments
        reloaded = self._reload()
        lines = list(reloaded.lines)
        begun = [newcomer for newcomer in reloaded.newcomers if self._spawning.enlist(newcomer)]
        lines += [f"{newcomer.name} ({newcomer.role}) is at work" for newcomer in begun]
        reply(ControlReply(text="\n".join(lines) or "nothing has changed", data={"lines": lines}))
