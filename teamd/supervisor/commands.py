"""What the supervisor does on request: spawn, shutdown, resume, reload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from teamd.errors import NotAMessage, TeamError
from teamd.protocol import FRESH_KEY, LEAD, PROMPT_KEY, Message, check_name
from teamd.states import Status
from teamd.store import files
from teamd.store.requests import Answer
from teamd.supervisor.declared import prompt_id
from teamd.supervisor.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from teamd.journal import Journal
    from teamd.store.post import Post
    from teamd.store.requests import Request
    from teamd.store.roster import Member
    from teamd.supervisor.handshakes import Handshakes
    from teamd.supervisor.register import Register
    from teamd.supervisor.resuming import Resuming
    from teamd.supervisor.shutdowns import Shutdowns
    from teamd.supervisor.teammates import Teammates

    Reply = Callable[[Answer], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """Who is to be spawned, and what for.

    Attributes:
        plan: whether it works by plan; `None` for as before.
    """

    name: str
    role: str
    prompt: str
    model: str | None = None
    fresh: bool = False
    plan: bool | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Newcomer:
        """Read a spawn request's arguments.

        Raises:
            NotAMessage: one is missing or of the wrong kind.
            BadName: nobody can have that name.
        """
        plan = arguments.get("plan")
        return cls(
            name=check_name(_text(arguments, "name")),
            role=_text(arguments, "role"),
            prompt=_text(arguments, "prompt"),
            model=_model(arguments),
            fresh=arguments.get("fresh") is True,
            plan=plan if isinstance(plan, bool) else None,
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
        handshakes: Handshakes,
        shutdowns: Shutdowns,
        post: Post,
        journal: Journal,
        caution: Callable[[], str | None],
        check_role: Callable[[str], object],
        reload: Callable[[], Reloaded],
        resuming: Resuming,
    ) -> None:
        self._teammates = teammates
        self._register = register
        self._handshakes = handshakes
        self._post = post
        self._journal = journal
        self._caution = caution
        self._check_role = check_role
        self._reload = reload
        self._resuming = resuming
        self._known = {
            "spawn": self._answer_spawn,
            "lead": self._answer_lead,
            "interrupt": self._answer_interrupt,
            "shutdown": shutdowns.answer,
            "resume": self._answer_resume,
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
        """Start or wake a teammate: the roster first, then the prompt, then the process.

        The prompt is what makes it: what fails before leaves all as it was, what fails behind it
        is tried again until it is done. A supervisor that is killed in between leaves one that
        idles, and nobody who was told otherwise.

        Args:
            newcomer: who.
            message_id: the prompt's.
            sender: whom the prompt is from; it reports to an agent of another team, where that
                is who wants it.

        Raises:
            TeamError: it works already, is being shut down, or remembers another role; the role's
                file cannot be understood; something cannot be written.
        """
        member = self._register.team.find(newcomer.name)
        self._check(member, newcomer)
        self._check_role(newcomer.role)
        self._register.check()
        name = member.name if member else newcomer.name
        self._handshakes.forget(name)
        prompt = _prompt(newcomer, name, message_id, sender)
        self._admit(
            name,
            newcomer.role,
            newcomer.model,
            plan=newcomer.plan,
            spawned_by=sender if "@" in sender else None,
            then=lambda: self._post.mailbox(name).put(prompt),
        )
        self._journal.note("spawned", name=name, role=newcomer.role, message=message_id)
        return self._register.team.get(name)

    def enlist(self, declared: Newcomer) -> bool:
        """Spawn one whom `team.toml` declares, unless it is a member; returns whether it was none.

        A member that was never told anything gets its prompt: a supervisor that was killed has
        admitted it, and no more.

        Raises:
            TeamError: as for `spawn`.
        """
        member = self._register.team.find(declared.name)
        message_id = prompt_id(self._post.paths, declared)
        if member is None:
            self.spawn(declared, message_id)
        elif self._was_told_nothing(member.name):
            self._post.mailbox(member.name).put(_prompt(declared, member.name, message_id, LEAD))
        return member is None

    def _was_told_nothing(self, name: str) -> bool:
        spoken = files.size(self._post.paths.transcript(name))
        return not spoken and not self._post.mailbox(name).waiting()

    def _admit(
        self,
        name: str,
        role: str,
        model: str | None,
        *,
        plan: bool | None = None,
        spawned_by: str | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Have it in the roster, then do something, then have it at work; or all as before."""
        before = self._register.team.find(name)
        self._register.admit(name, role, model, plan=plan, spawned_by=spawned_by)
        try:
            self._register.publish()
            self._resuming.let_go(name)
            then()
        except TeamError:
            self._register.restore(name, before)
            raise
        self._resuming.go_on(name)

    def _check(self, member: Member | None, newcomer: Newcomer) -> None:
        name = member.name if member else newcomer.name
        stopping = self._teammates.state(name) in (State.STOPPING, State.KILLED)
        if stopping or self._handshakes.pending(name):
            raise TeamError(f"{name} is being shut down; try again in a moment")
        if member is None:
            return
        if member.status is Status.WORKING:
            raise TeamError(
                f"{name} is working already; `teamctl send {name} …` reaches it at once, "
                f"`teamctl shutdown {name}` ends it"
            )
        if member.status is Status.PAUSED:
            self._resuming.check(name)
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

    def _answer_lead(self, request: Request, reply: Reply) -> None:
        """Have an agent that leads, from now on until it is shut down.

        Who wants it to begin anew says so in a message, as a spawn does; here it is seen whether
        that is the time for it.
        """
        member = self._register.team.find(LEAD)
        model = _model(request.arguments)
        fresh = request.arguments.get("fresh") is True
        stopping = self._teammates.state(LEAD) in (State.STOPPING, State.KILLED)
        if stopping or self._handshakes.pending(LEAD):
            raise TeamError("lead is being shut down; try again in a moment")
        self._register.check()
        if member is None or not member.status.wants_process:
            failed = member is not None and member.status is Status.FAILED
            kept = member.model if member is not None and failed else None
            self._handshakes.forget(LEAD)
            self._admit(LEAD, LEAD, model or kept)
        elif fresh or model is not None:
            self._renew_lead(member, model)
        self._teammates.start(LEAD)  # at once, where it waits for its next try
        member = self._register.team.get(LEAD)
        data = {"member": member.encode(), "warning": self._caution() or member.reason}
        reply(Answer(text="lead is there", data=data))

    def _renew_lead(self, member: Member, model: str | None) -> None:
        """Let a lead that rests go on by other terms, with what it is told next."""
        if member.status is Status.WORKING:
            raise TeamError(
                "lead is working already; `teamctl chat` reaches it as it is, "
                "`teamctl shutdown lead` ends it"
            )
        if member.status is Status.PAUSED:
            self._resuming.check(LEAD)
            self._resuming.let_go(LEAD)
        if model is not None:
            self._register.change(LEAD, model=model)

    def _answer_interrupt(self, request: Request, reply: Reply) -> None:
        member = self._register.team.get(_text(request.arguments, "name"))
        if member.status is not Status.WORKING:
            raise TeamError(f"{member.name} is {member.status}; there is nothing to interrupt")
        self._teammates.interrupt(member.name)
        reply(Answer(text=f"{member.name} is interrupted"))

    def _answer_resume(self, request: Request, reply: Reply) -> None:
        name = self._register.team.get(_text(request.arguments, "name")).name
        self._reload()
        self._resuming.resume(name)
        self._journal.note("resumed", name=name)
        reply(Answer(text=f"{name} goes on"))

    def _answer_reload(self, request: Request, reply: Reply) -> None:  # noqa: ARG002 -- no arguments
        reloaded = self._reload()
        lines = list(reloaded.lines)
        begun = [newcomer for newcomer in reloaded.newcomers if self.enlist(newcomer)]
        lines += [f"{newcomer.name} ({newcomer.role}) is at work" for newcomer in begun]
        reply(Answer(text="\n".join(lines) or "nothing has changed", data={"lines": lines}))


def _prompt(newcomer: Newcomer, name: str, message_id: str, sender: str) -> Message:
    extra = {PROMPT_KEY: True, **({FRESH_KEY: True} if newcomer.fresh else {})}
    return Message(id=message_id, sender=sender, to=name, content=newcomer.prompt, extra=extra)


def _model(arguments: Mapping[str, Any]) -> str | None:
    model = arguments.get("model")
    if not (model is None or isinstance(model, str)):
        raise NotAMessage("a model is named by a text")
    return model


def _text(arguments: Mapping[str, Any], key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not value.strip():
        raise NotAMessage(f"a {key} is needed, as a text that is not empty")
    return value
