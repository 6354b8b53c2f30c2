"""What the supervisor does on request: spawn, shutdown, reload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from teamd.errors import ExitCode, NotAMessage, StoreError, TeamError
from teamd.protocol import LEAD, Message, check_name, new_id
from teamd.states import Status
from teamd.store.requests import Answer
from teamd.supervisor.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from teamd.journal import Journal
    from teamd.store.post import Post
    from teamd.store.requests import Request
    from teamd.store.roster import Member
    from teamd.supervisor.register import Register
    from teamd.supervisor.teammates import Teammates

    Reply = Callable[[Answer], None]

LONGEST_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """Who is to be spawned, and what for."""

    name: str
    role: str
    prompt: str
    model: str | None = None
    fresh: bool = False

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Newcomer:
        """Read a spawn request's arguments.

        Raises:
            NotAMessage: one is missing or of the wrong kind.
            BadName: nobody can have that name.
        """
        model = arguments.get("model")
        if not (model is None or isinstance(model, str)):
            raise NotAMessage("a model is named by a text")
        return cls(
            name=check_name(_text(arguments, "name")),
            role=_text(arguments, "role"),
            prompt=_text(arguments, "prompt"),
            model=model,
            fresh=arguments.get("fresh") is True,
        )


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What reading the settings again came to: sentences, and teammates to spawn."""

    lines: tuple[str, ...]
    newcomers: tuple[Newcomer, ...]


class Commands:
    """Carries out requests.

    Args:
        caution: a sentence that whoever spawns should read, such as that there is no key.
        check_role: raises a `TeamError` for a role whose file cannot be understood.
        reload: reads the settings again.
    """

    def __init__(
        self,
        *,
        teammates: Teammates,
        register: Register,
        post: Post,
        journal: Journal,
        caution: Callable[[], str | None],
        check_role: Callable[[str], object],
        reload: Callable[[], Reloaded],
    ) -> None:
        self._teammates = teammates
        self._register = register
        self._post = post
        self._journal = journal
        self._caution = caution
        self._check_role = check_role
        self._reload = reload
        self._known = {
            "spawn": self._answer_spawn,
            "lead": self._answer_lead,
            "interrupt": self._answer_interrupt,
            "shutdown": self._answer_shutdown,
            "reload": self._answer_reload,
        }

    def carry_out(self, request: Request, reply: Reply) -> None:
        """Do what is asked; `reply` is called once, now or when it is done.

        Raises:
            TeamError: it is refused, or failed.
        """
        command = self._known.get(request.command)
        if command is None:
            known = ", ".join(self._known)
            raise NotAMessage(f"teamd knows no request {request.command!r}; it knows: {known}")
        command(request, reply)

    def spawn(self, newcomer: Newcomer, message_id: str, *, sender: str = LEAD) -> Member:
        """Start or wake a teammate: the prompt first, then the roster, then the process.

        Args:
            newcomer: who.
            message_id: the prompt's.
            sender: whom the prompt is from.

        Raises:
            TeamError: it works already, is being shut down, or remembers another role; the role's
                file cannot be understood.
        """
        member = self._register.team.find(newcomer.name)
        self._check(member, newcomer)
        self._check_role(newcomer.role)
        self._register.check()
        name = member.name if member else newcomer.name
        extra = {"fresh": True} if newcomer.fresh else {}
        prompt = Message(
            id=message_id, sender=sender, to=name, content=newcomer.prompt, extra=extra
        )
        self._post.mailbox(name).put(prompt)
        self._register.admit(name, newcomer.role, newcomer.model)
        try:
            self._register.publish()
        except StoreError as error:  # who has no process must not pass for being at work
            self._register.change(name, status=Status.FAILED, reason=str(error))
            raise
        self._teammates.start(name)
        self._register.publish()
        self._journal.note("spawned", name=name, role=newcomer.role, message=message_id)
        return self._register.team.get(name)

    def _check(self, member: Member | None, newcomer: Newcomer) -> None:
        name = member.name if member else newcomer.name
        if self._teammates.state(name) in (State.STOPPING, State.KILLED):
            raise TeamError(f"{name} is being shut down; try again in a moment")
        if member is None:
            return
        if member.status is Status.WORKING:
            raise TeamError(
                f"{name} is working already; `teamctl send {name} …` reaches it at once, "
                f"`teamctl shutdown {name}` ends it"
            )
        if member.role != newcomer.role and not newcomer.fresh:
            raise TeamError(
                f"{name} remembers being {member.role!r}, not {newcomer.role!r}; "
                "--fresh lets it begin anew in the new role"
            )

    def _answer_spawn(self, request: Request, reply: Reply) -> None:
        leads = request.sender.partition("@")[0] == LEAD  # an agent, here or of another team
        sender = request.sender if leads else self._register.team.person
        member = self.spawn(Newcomer.of(request.arguments), request.id, sender=sender)
        if member.status is Status.FAILED:
            raise TeamError(f"{member.name} could not be started: {member.reason}")
        caution = self._caution() or member.reason  # such as: no process could be forked yet
        data = {"member": member.encode(), "message_id": request.id, "warning": caution}
        reply(Answer(text=f"{member.name} ({member.role}) is at work", data=data))

    def _answer_lead(self, request: Request, reply: Reply) -> None:  # noqa: ARG002 -- no arguments
        """Have an agent that leads, from now on until it is shut down."""
        member = self._register.team.find(LEAD)
        if self._teammates.state(LEAD) in (State.STOPPING, State.KILLED):
            raise TeamError("lead is being shut down; try again in a moment")
        self._register.check()
        if member is None or not member.status.wants_process:
            self._register.admit(LEAD, LEAD, None)
            self._register.publish()
        self._teammates.start(LEAD)
        self._register.publish()
        member = self._register.team.get(LEAD)
        data = {"member": member.encode(), "warning": self._caution() or member.reason}
        reply(Answer(text="lead is there", data=data))

    def _answer_interrupt(self, request: Request, reply: Reply) -> None:
        member = self._register.team.get(_text(request.arguments, "name"))
        if member.status is not Status.WORKING:
            raise TeamError(f"{member.name} is {member.status}; there is nothing to interrupt")
        self._teammates.interrupt(member.name)
        reply(Answer(text=f"{member.name} is interrupted"))

    def _answer_shutdown(self, request: Request, reply: Reply) -> None:
        names = self._who(request.arguments)
        seconds = _seconds(request.arguments)
        forced: dict[str, bool] = {}

        def ended(name: str) -> Callable[[bool], None]:
            def note(took_force: bool) -> None:  # noqa: FBT001 -- a callback's fact
                forced[name] = took_force
                self._register.change(name, status=Status.SHUTDOWN, reason=None)
                if len(forced) == len(names):
                    reply(_shutdown_answer(forced))

            return note

        for name in names:
            self._journal.note("shutting down", name=name, seconds=seconds)
            self._teammates.stop(name, seconds=seconds, then=ended(name))
        if not names:
            reply(Answer(text="nobody is running"))

    def _who(self, arguments: Mapping[str, Any]) -> list[str]:
        team = self._register.team
        if arguments.get("all") is True:
            return [m.name for m in team.members if m.status is not Status.SHUTDOWN]
        return [team.get(_text(arguments, "name")).name]

    def _answer_reload(self, request: Request, reply: Reply) -> None:  # noqa: ARG002 -- no arguments
        reloaded = self._reload()
        lines = list(reloaded.lines)
        for newcomer in reloaded.newcomers:
            if self._register.team.find(newcomer.name) is None:
                self.spawn(newcomer, new_id())
                lines.append(f"{newcomer.name} ({newcomer.role}) is at work")
        reply(Answer(text="\n".join(lines) or "nothing has changed", data={"lines": lines}))


def _shutdown_answer(forced: Mapping[str, bool]) -> Answer:
    lines = [
        f"{name} did not end in time and was killed" if took else f"{name} is shut down"
        for name, took in forced.items()
    ]
    code = ExitCode.DEADLINE if any(forced.values()) else ExitCode.DONE
    return Answer(text="\n".join(lines), exit_code=code, data={"forced": dict(forced)})


def _text(arguments: Mapping[str, Any], key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not value.strip():
        raise NotAMessage(f"a {key} is needed, as a text that is not empty")
    return value


def _seconds(arguments: Mapping[str, Any]) -> float:
    value = arguments.get("seconds")
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LONGEST_SECONDS
    ):
        raise NotAMessage(f"a shutdown takes 0 to {LONGEST_SECONDS} seconds")
    return float(value)
