"""How a teammate comes to be at work: checked, admitted, told, started; or left as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.errors import TeamError, Unsynced
from teamd.protocol import LEAD
from teamd.states import Status
from teamd.store import files
from teamd.supervisor.lifecycle import State
from teamd.supervisor.newcomers import prompt_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.journal import Journal
    from teamd.protocol import Message
    from teamd.store.post import Post
    from teamd.store.roster import Member
    from teamd.supervisor.handshakes import Handshakes
    from teamd.supervisor.newcomers import Newcomer
    from teamd.supervisor.register import Register
    from teamd.supervisor.resuming import Resuming
    from teamd.supervisor.teammates import Teammates


class Spawning:
    """Spawns teammates, and calls the agent that leads.

    Args:
        check_role: raises a `TeamError` for a role whose file cannot be understood.
    """

    def __init__(
        self,
        *,
        teammates: Teammates,
        register: Register,
        handshakes: Handshakes,
        resuming: Resuming,
        post: Post,
        journal: Journal,
        check_role: Callable[[str], object],
    ) -> None:
        self._teammates = teammates
        self._register = register
        self._handshakes = handshakes
        self._resuming = resuming
        self._post = post
        self._journal = journal
        self._check_role = check_role

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
        prompt = newcomer.told(name, message_id, sender)
        self._admit(
            name,
            newcomer.role,
            newcomer.model,
            plan=newcomer.plan,
            spawned_by=sender if "@" in sender else None,
            then=lambda: self._put(prompt),
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
            self._post.mailbox(member.name).put(declared.told(member.name, message_id, LEAD))
        return member is None

    def lead(self, *, fresh: bool, model: str | None) -> Member:
        """Have an agent that leads, from now on until it is shut down.

        Args:
            fresh: whether it is to begin anew. It does by the message that says so, as by a
                spawn's; here it is seen whether that is the time for it.
            model: another one than that of the settings, or than it has.

        Raises:
            TeamError: it is being shut down, works, or is at its limit; something cannot be
                written.
        """
        member = self._register.team.find(LEAD)
        self._check_stays(LEAD)
        self._register.check()
        if member is None or not member.status.wants_process:
            failed = member is not None and member.status is Status.FAILED
            kept = member.model if member is not None and failed else None
            self._handshakes.forget(LEAD)
            self._admit(LEAD, LEAD, model or kept)
        elif fresh or model is not None:
            self._renew_lead(member, model)
        self._teammates.start(LEAD)  # at once, where it waits for its next try
        return self._register.team.get(LEAD)

    def _was_told_nothing(self, name: str) -> bool:
        # In this order: what is taken meanwhile is in the conversation by then.
        return not self._post.mailbox(name).waiting() and not files.size(
            self._post.paths.transcript(name)
        )

    def _put(self, prompt: Message) -> None:
        try:
            self._post.mailbox(prompt.to).put(prompt)
        except Unsynced as error:  # it stands there, and is read, unless the power goes now
            self._journal.error("prompt not synced", error, name=prompt.to)

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
        self._check_stays(name)
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

    def _check_stays(self, name: str) -> None:
        stopping = self._teammates.state(name) in (State.STOPPING, State.KILLED)
        if stopping or self._handshakes.pending(name):
            raise TeamError(f"{name} is being shut down; try again in a moment")

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
