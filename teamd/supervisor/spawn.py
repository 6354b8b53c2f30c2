"""Spawning: a teammate is checked, admitted, prompted and started; or all is left as it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from teamd.approvals.approval import Approval, Kind, find_waiting
from teamd.approvals.store import Approvals
from teamd.budget.refusals import Raise
from teamd.control import ControlRequest
from teamd.copies import clone, record
from teamd.errors import NotAMessage, TeamError, Unsynced
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.hosts.address import is_far
from teamd.journal import LoggedEvent
from teamd.messages import FRESH_KEY, LEAD, PROMPT_KEY, Message, check_name
from teamd.model_server.facts import EFFORTS
from teamd.settings import Teammate
from teamd.settings.roles import Role
from teamd.supervisor.pricing import check_price, current_price, warn_of_price
from teamd.supervisor.team_context import TeamContext
from teamd.supervisor.workers import CopyOutcome
from teamd.team.member import Member
from teamd.team.states import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """A teammate that is wanted, and its task.

    Attributes:
        effort: of its model; `None` for that of the role or the team.
        plan: `None` for as before.
        worktree: whether it is to work in a copy of its own; `None` for as before as well.
    """

    name: str
    role: str
    prompt: str
    model: str | None = None
    effort: str | None = None
    fresh: bool = False
    plan: bool | None = None
    worktree: bool | None = None

    @classmethod
    def decode(cls, request: ControlRequest) -> SpawnRequest:
        """Read the arguments of a control request.

        Raises:
            NotAMessage: one is missing or of the wrong kind.
            BadName: no teammate can have that name.
        """
        plan, worktree = (request.arguments.get(key) for key in ("plan", "worktree"))
        effort = request.arguments.get("effort")
        if effort not in (None, *EFFORTS):
            raise NotAMessage(f"effort must be one of {', '.join(EFFORTS)}")
        return cls(
            name=check_name(request.text("name")),
            role=request.text("role"),
            prompt=request.text("prompt"),
            model=request.model,
            effort=effort,
            fresh=request.flag("fresh"),
            plan=plan if isinstance(plan, bool) else None,
            worktree=worktree if isinstance(worktree, bool) else None,
        )

    def message(self, name: str, message_id: str, sender: str) -> Message:
        """Return the prompt as mail, to the name as it is written in the roster."""
        extra = {PROMPT_KEY: True, **({FRESH_KEY: True} if self.fresh else {})}
        return Message(id=message_id, sender=sender, to=name, content=self.prompt, extra=extra)


def spawn(
    context: TeamContext, wanted: SpawnRequest, message_id: str, *, sender: str = LEAD
) -> Member:
    """Start or wake a teammate: the roster first, then the prompt, then the process.

    The prompt is what makes it: a failure before leaves all as it was, what fails behind it is
    tried again until it is done. A supervisor that is killed in between leaves a teammate that
    idles, and nobody was told otherwise.

    Args:
        context: the team.
        wanted: the teammate.
        message_id: the prompt's.
        sender: of the prompt. The teammate reports to an agent of another team that wants it.

    Raises:
        TeamError: it works already, is being shut down, or remembers another role; the role's
            file cannot be understood; something cannot be written.
    """
    member = context.roster.team.find(wanted.name)
    name = member.name if member else wanted.name
    check(context, name, member, wanted)
    context.shutdowns.forget(name)
    prompt = wanted.message(name, message_id, sender)
    _admit(context, replace(wanted, name=name), prompt)
    context.journal.note(LoggedEvent.SPAWNED, name=name, role=wanted.role, message=message_id)
    return context.roster.team.get(name)


def spawn_lead(context: TeamContext, *, fresh: bool, model: str | None) -> Member:
    """Have an agent that leads, from now on until it is shut down.

    Args:
        context: the team.
        fresh: whether it is to begin a new conversation. It does by the message that says so, as
            by a spawn's; here is the check whether that is possible now.
        model: another one than that of the settings, or than it has.

    Raises:
        TeamError: it is being shut down, works, or is at its limit; something cannot be written.
    """
    member = context.roster.team.find(LEAD)
    _check_not_ending(context, LEAD)
    context.roster.check()
    check_price(context, LEAD, model or (member.model if member else None))
    if member is None or not member.status.wants_process:
        kept = member.model if member and member.status is Status.FAILED else None
        context.shutdowns.forget(LEAD)
        _admit(context, SpawnRequest(name=LEAD, role=LEAD, prompt="", model=model or kept))
    elif fresh or model is not None:
        _renew_lead(context, member, model)
    context.children.start(LEAD)  # at once, where it waits for its next try
    return context.roster.team.get(LEAD)


def resume(context: TeamContext, member: Member, more: Mapping[str, Decimal]) -> list[Raise]:
    """Let a paused teammate go on where it was, by new settings; return which limits were raised.

    Args:
        context: the team.
        member: the teammate.
        more: by how much the limits that stop it are raised first, by unit.

    Raises:
        TeamError: it is not paused, or still at its limit.
    """
    name = member.name
    if member.status is not Status.PAUSED:
        raise TeamError(f"{name} is not paused, it is {member.status}; `teamctl team` shows all")
    if context.children.ending(name):
        raise TeamError(f"{name} is about to end; try again in a moment")
    _check_not_waiting(context, name)
    raised = _raise_limits(context, name, more) if more else []
    _check_limits(context, name)
    at_limit = context.ledger.is_refused(name)
    context.ledger.let_go(name)  # what can fail comes first
    context.roster.change(name, status=Status.WORKING, reason=None)
    if at_limit:
        _go_on(context, name)
    else:  # a missing key, say: only a new process knows of other settings
        context.children.restart(name, seconds=context.settings.now.supervision.stop_seconds)
    return raised


def _raise_limits(context: TeamContext, name: str, more: Mapping[str, Decimal]) -> list[Raise]:
    raised, refusal = context.ledger.raise_limits(name, more, current_price)
    if refusal is not None:
        raise TeamError(f"{name} stays paused: {refusal.sentence(name)}")
    if not raised:
        raise TeamError(f"no limit stops {name}; `teamctl resume {name}` lets it go on")
    context.journal.note(
        LoggedEvent.LIMIT_RAISED, name=name, limits=[one.encode() for one in raised]
    )
    return raised


def check(context: TeamContext, name: str, member: Member | None, wanted: SpawnRequest) -> None:
    """See that a teammate may be spawned so.

    Raises:
        TeamError: as for `spawn`.
    """
    _check_member(context, name, member, wanted)
    role = context.program.find_role(wanted.role) or Role()  # raises where it is damaged
    if wanted.plan and "submit_plan" in role.dropped_tools(context.settings.now.model.tools):
        raise TeamError(
            f"{name} could not submit a plan, since its tools are without submit_plan; leave out "
            "--plan, or change the role file or [model] tools"
        )
    check_price(context, wanted.role, wanted.model or (member.model if member else None))
    context.roster.check()


def _check_member(
    context: TeamContext, name: str, member: Member | None, wanted: SpawnRequest
) -> None:
    _check_not_ending(context, name)
    context.copies.check(name)
    if member is None:
        return
    if member.status is Status.WORKING:
        raise TeamError(
            f"{name} is working already; `teamctl send {name} …` reaches it at once, "
            f"`teamctl shutdown {name}` ends it"
        )
    if member.pause is not None and member.status.wants_process:
        raise TeamError(f"{name} is {member.pause}")
    if member.status is Status.PAUSED:
        _check_not_waiting(context, name)
        _check_limits(context, name)
    if member.role != wanted.role and not wanted.fresh:
        raise TeamError(
            f"{name} remembers being {member.role!r}, not {wanted.role!r}; "
            "--fresh lets it begin anew in the new role"
        )
    if wanted.worktree not in (None, member.worktree) and not wanted.fresh:
        where = "a working copy of its own" if member.worktree else "the shared folder"
        raise TeamError(
            f"{name} remembers working in {where}; --fresh lets it begin anew in another place"
        )


def _check_not_ending(context: TeamContext, name: str) -> None:
    if context.children.ending(name) or context.shutdowns.pending(name):
        raise TeamError(f"{name} is being shut down; try again in a moment")


def waiting_permission(context: TeamContext, name: str) -> Approval | None:
    """Return the permission that a teammate waits for in the middle of a turn, if it does."""
    if context.roster.team.get(name).status is not Status.PAUSED:
        return None
    asked = Approvals(context.settings.paths, context.post).all()
    return find_waiting(asked, name, Kind.PERMISSION)


def _check_not_waiting(context: TeamContext, name: str) -> None:
    if (asked := waiting_permission(context, name)) is not None:
        raise TeamError(
            f"{name} waits for a permission: `teamctl approve {asked.id}` or "
            f"`teamctl reject {asked.id}` lets it go on"
        )


def _check_limits(context: TeamContext, name: str) -> None:
    """See that no limit stands against the call for which a teammate was paused.

    Raises:
        TeamError: one does.
    """
    refusal = context.ledger.standing_refusal(name, current_price)
    if refusal is not None:
        raise TeamError(f"{name} stays paused: {refusal.sentence(name)}")


def _admit(context: TeamContext, wanted: SpawnRequest, prompt: Message | None = None) -> None:
    """Put a member into the roster, give it its prompt, then start it; or leave all as before."""
    name, roster = wanted.name, context.roster
    before = roster.team.find(name)
    sender = prompt.sender if prompt else LEAD
    # An agent of another team. Plans never go to another host: whoever leads here judges them.
    spawned_by = sender if "@" in sender and not is_far(sender) else None
    said = {"plan": wanted.plan, "worktree": wanted.worktree}
    told = {key: value for key, value in said.items() if value is not None}  # others as before
    asked = {"model": wanted.model, "effort": wanted.effort, "spawned_by": spawned_by}
    roster.admit(name, wanted.role, **asked, **told)
    try:
        roster.publish()
        context.ledger.let_go(name)
        if prompt is not None:
            _put(context, prompt)  # it makes the inbox, too
        elif before is None:
            context.post.mailbox(name).create()
    except TeamError:
        roster.restore(name, before)
        raise
    _go_on(context, name)


def _put(context: TeamContext, prompt: Message) -> None:
    try:
        context.post.mailbox(prompt.to).put(prompt)
    except Unsynced as error:  # it stands there, and is read, unless the power goes now
        context.journal.error("prompt not synced", error, name=prompt.to)


def _go_on(context: TeamContext, name: str) -> None:
    """Start a teammate that has no process; one that has keeps it, and its jobs. Wake it."""
    context.children.start(name)
    context.children.ring([name])


def _renew_lead(context: TeamContext, member: Member, model: str | None) -> None:
    """Let a lead that rests go on by other terms, with what it is told next."""
    if member.status is Status.WORKING:
        raise TeamError(
            "lead is working already; `teamctl chat` reaches it as it is, "
            "`teamctl shutdown lead` ends it"
        )
    if member.status is Status.PAUSED:
        _check_not_waiting(context, LEAD)
        _check_limits(context, LEAD)
        context.ledger.let_go(LEAD)
    if model is not None:
        context.roster.change(LEAD, model=model)


def spawn_declared(context: TeamContext, teammate: Teammate) -> bool:
    """Spawn a teammate of `team.toml`, unless it is a member; return whether it was none.

    A member that was never told anything gets its prompt: a supervisor that was killed has
    admitted it, and no more.

    Raises:
        TeamError: as for `spawn`.
    """
    wanted = _request(teammate)
    member = context.roster.team.find(wanted.name)
    message_id = _prompt_id(context.settings.paths, wanted)
    if member is None and not lacks_copy(context, given := settle_copy(context, wanted)):
        _begin(context, given, message_id)
    elif member is None:
        spawn_with_copy(
            context,
            given,
            begin=lambda lacks: _begin(context, given, message_id, lacks),
            refuse=lambda error: report_unspawned(context, wanted.name, error),
        )
    elif _was_told_nothing(context, member.name):
        prompt = wanted.message(member.name, message_id, LEAD)
        context.post.mailbox(member.name).put(prompt)
    return member is None


def _begin(context: TeamContext, wanted: SpawnRequest, message_id: str, lacks: str = "") -> None:
    spawned = spawn(context, wanted, message_id)
    about_copy = f"in the working copy of {spawned.name}, {lacks}" if lacks else ""
    # No command is there to print it.
    if warning := "; ".join(filter(None, (warn_of_price(context, spawned), about_copy))):
        context.roster.tell_lead(warning, to=context.roster.team.person)


def report_unspawned(context: TeamContext, name: str, error: TeamError) -> None:
    """Log why a declared teammate was not spawned, and mail it to the person."""
    context.journal.error("not spawned", error, name=name)
    context.roster.tell_lead(f"{name} was not spawned: {error}", to=context.roster.team.person)


def _request(teammate: Teammate) -> SpawnRequest:
    return SpawnRequest(
        name=teammate.name,
        role=teammate.role,
        prompt=teammate.prompt,
        model=teammate.model,
        effort=teammate.effort,
        plan=teammate.plan,
        worktree=teammate.worktree,
    )


def _was_told_nothing(context: TeamContext, name: str) -> bool:
    # In this order: what is taken meanwhile is in the conversation by then.
    waiting = context.post.mailbox(name).waiting()
    return not waiting and not files.size(context.settings.paths.transcript(name))


def _prompt_id(paths: TeamPaths, declared: SpawnRequest) -> str:
    """Return the id of a declared teammate's prompt, the same while it could be the same prompt.

    A supervisor may die between the roster, the prompt and whatever it notes of them. The next one
    sends it again, and under the same id that is one message. A teammate that has worked since, and
    was taken out of the roster by hand, has a longer conversation: its prompt then is a new one.

    Raises:
        StoreError: the conversation cannot be looked at.
    """
    spoken = files.size(paths.transcript(declared.name))
    facts = [paths.own_name, declared.name, declared.prompt, spoken]
    return f"declared-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}"


Begin = Callable[[str], None]
Refuse = Callable[[TeamError], None]


def settle_copy(context: TeamContext, wanted: SpawnRequest) -> SpawnRequest:
    """Say whether a teammate is to have a copy: as asked, as before, else by the settings.

    A member's name is from here on as the roster writes it.
    """
    member = context.roster.team.find(wanted.name)
    name = member.name if member else wanted.name
    return replace(wanted, name=name, worktree=_wants_copy(context, member, wanted))


def lacks_copy(context: TeamContext, wanted: SpawnRequest) -> bool:
    """Return whether the working copy is still to be made that a teammate is to have."""
    wants = bool(wanted.worktree)
    return wants and record.find(context.settings.paths, wanted.name) is None


def spawn_with_copy(
    context: TeamContext, wanted: SpawnRequest, *, begin: Begin, refuse: Refuse
) -> None:
    """Make a teammate's working copy, and begin its spawn when that is done.

    Args:
        context: the team.
        wanted: the teammate, see `settle_copy`, which lacks its copy.
        begin: spawns it; gets what the copy lacks.
        refuse: called instead where no copy can be made, or where `begin` fails.

    Raises:
        TeamError: as for `spawn`, and nothing was begun.
    """
    name = wanted.name
    check(context, name, context.roster.team.find(name), wanted)

    def end(outcome: CopyOutcome) -> None:
        if outcome.killed:
            _take_back(context, name)
        if outcome.error:
            refuse(TeamError(f"{name} was not spawned: {outcome.error}"))
            return
        try:
            begin(outcome.lacks)
        except TeamError as error:
            _take_back(context, name)
            refuse(error)
        except Exception as error:  # noqa: BLE001 -- as for a request, see ControlInbox
            context.journal.error("not done", error, name=name)
            refuse(
                TeamError(f"internal error ({type(error).__name__}); `teamctl logs teamd` has it")
            )

    team = context.roster.team.name
    context.copies.make(name, team, context.settings.now.team.workspace, end)


def _wants_copy(context: TeamContext, member: Member | None, wanted: SpawnRequest) -> bool:
    if wanted.worktree is not None:
        return wanted.worktree
    if member is not None and (member.worktree or not wanted.fresh):
        return member.worktree
    return context.settings.now.gives_copy(wanted.name)


def _take_back(context: TeamContext, name: str) -> None:
    """Remove a copy in which nobody has begun to work, or what is left of one."""
    settings = context.settings
    try:
        clone.remove_copy(settings.paths, name, settings.now.team.workspace)
    except (TeamError, OSError) as error:
        context.journal.error("working copy not removed", error, name=name)
