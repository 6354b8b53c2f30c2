"""Spawning: a teammate is checked, admitted, prompted and started; or nothing changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from teamd.approvals.approval import CALLS, Approval, find_waiting
from teamd.approvals.store import Approvals
from teamd.budget.limits import Raise
from teamd.control import ControlRequest
from teamd.copies import clone, record
from teamd.errors import NotAMessage, TeamError, Unsynced
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.hosts.places import is_far
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
        plan: whether it must submit plans; `None` to keep the member's value.
        worktree: whether it works in its own copy; `None` to keep the member's value.
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

    The prompt decides: a failure before it undoes everything, and steps after it are repeated until
    they succeed. A supervisor that is killed in between leaves an idle teammate, and has not
    reported success.

    Args:
        context: the team.
        wanted: the teammate.
        message_id: the id of the prompt.
        sender: the prompt's sender. If it is an agent of another team, the teammate reports to it.

    Raises:
        TeamError: it works already, is being shut down, or remembers another role; the role's
            file is invalid; a file cannot be written.
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
    """Start the lead agent, which leads until it is shut down.

    Args:
        context: the team.
        fresh: whether a new conversation is wanted. The next message starts it, as with a spawn;
            this function only checks that it is possible now.
        model: the model to use instead of that in the settings, or of its present one.

    Raises:
        TeamError: it is being shut down, works, or is at its limit; a file cannot be written.
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
    context.children.start(LEAD)  # at once, even if it waits for a restart after a crash
    return context.roster.team.get(LEAD)


def resume(context: TeamContext, member: Member, more: Mapping[str, Decimal]) -> list[Raise]:
    """Let a paused teammate go on with the new settings; return the limits that were raised.

    Args:
        context: the team.
        member: the teammate.
        more: the amounts by which to raise the limits that stop it, by unit.

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
    context.ledger.let_go(name)  # first, since it may fail
    context.roster.change(name, status=Status.WORKING, reason=None)
    if at_limit:
        _go_on(context, name)
    else:  # such as a missing key: only a new process follows the new settings
        context.children.restart(name, seconds=context.settings.now.supervision.stop_seconds)
    return raised


def _raise_limits(context: TeamContext, name: str, more: Mapping[str, Decimal]) -> list[Raise]:
    raised, refusal = context.ledger.raise_limits(name, more, current_price)
    if refusal is not None:
        raise TeamError(f"{name} stays paused: {refusal.sentence(name)}")
    if not raised and context.ledger.is_refused(name):
        return []  # the limit that stopped it was raised for another
    if not raised:
        raise TeamError(f"no limit stops {name}; `teamctl resume {name}` resumes it")
    context.journal.note(
        LoggedEvent.LIMIT_RAISED, name=name, limits=[one.encode() for one in raised]
    )
    return raised


def check(context: TeamContext, name: str, member: Member | None, wanted: SpawnRequest) -> None:
    """Check that a teammate may be spawned with these properties.

    Raises:
        TeamError: as for `spawn`.
    """
    _check_member(context, name, member, wanted)
    role = context.program.find_role(wanted.role) or Role()
    if wanted.plan and "submit_plan" in role.dropped_tools(context.settings.now.model.tools):
        raise TeamError(
            f"{name} could not submit a plan, since its tools do not include submit_plan; leave "
            "out "
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
            "--fresh lets it start over in the new role"
        )
    if wanted.worktree not in (None, member.worktree) and not wanted.fresh:
        where = "a working copy of its own" if member.worktree else "the shared folder"
        raise TeamError(
            f"{name} remembers working in {where}; --fresh lets it start over in another place"
        )


def _check_not_ending(context: TeamContext, name: str) -> None:
    if context.children.ending(name) or context.shutdowns.pending(name):
        raise TeamError(f"{name} is being shut down; try again in a moment")


def waiting_permission(context: TeamContext, name: str) -> Approval | None:
    """Return the permission for which a teammate waits in the middle of a turn, if any."""
    if context.roster.team.get(name).status is not Status.PAUSED:
        return None
    asked = Approvals(context.settings.paths, context.post).all()
    return find_waiting(asked, name, *CALLS)


def _check_not_waiting(context: TeamContext, name: str) -> None:
    if (asked := waiting_permission(context, name)) is not None:
        raise TeamError(
            f"{name} waits for a permission: `teamctl approve {asked.id}` or "
            f"`teamctl reject {asked.id}` resumes it"
        )


def _check_limits(context: TeamContext, name: str) -> None:
    """Check that no limit forbids the call for which a teammate was paused.

    Raises:
        TeamError: one does.
    """
    refusal = context.ledger.standing_refusal(name, current_price)
    if refusal is not None:
        raise TeamError(f"{name} stays paused: {refusal.sentence(name)}")


def _admit(context: TeamContext, wanted: SpawnRequest, prompt: Message | None = None) -> None:
    """Add a member to the roster, send its prompt, then start it; or change nothing."""
    name, roster = wanted.name, context.roster
    before = roster.team.find(name)
    sender = prompt.sender if prompt else LEAD
    # Plans never go to another host: the leader on this host reviews them.
    spawned_by = sender if "@" in sender and not is_far(sender) else None
    said = {"plan": wanted.plan, "worktree": wanted.worktree}
    told = {key: value for key, value in said.items() if value is not None}
    asked = {"model": wanted.model, "effort": wanted.effort, "spawned_by": spawned_by}
    roster.admit(name, wanted.role, **asked, **told)
    try:
        roster.publish()
        context.ledger.let_go(name)
        if prompt is not None:
            _put(context, prompt)  # creates the inbox, too
        elif before is None:
            context.post.mailbox(name).create()
    except TeamError:
        roster.restore(name, before)
        raise
    _go_on(context, name)


def _put(context: TeamContext, prompt: Message) -> None:
    try:
        context.post.mailbox(prompt.to).put(prompt)
    except Unsynced as error:  # it is in the inbox, unless the power fails now
        context.journal.error("prompt not synced", error, name=prompt.to)


def _go_on(context: TeamContext, name: str) -> None:
    """Wake a teammate, and start its process unless it has one."""
    context.children.start(name)
    context.children.ring([name])


def _renew_lead(context: TeamContext, member: Member, model: str | None) -> None:
    """Apply a new model to an idle or paused lead, from its next message on."""
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
    """Spawn a teammate of `team.toml`, unless it is a member; return whether it was new.

    A member without any mail or conversation gets its prompt: a supervisor was killed after it had
    admitted the member.

    Raises:
        TeamError: as for `spawn`.
    """
    wanted = _request(teammate)
    member = context.roster.team.find(wanted.name)
    message_id = _prompt_id(context.settings.paths, wanted)
    if member is None:
        spawn_in_place(
            context,
            wanted,
            message_id,
            then=lambda spawned, lacks: _warn_person(context, spawned, lacks),
            refuse=lambda error: report_unspawned(context, wanted.name, error),
        )
    elif _was_told_nothing(context, member.name):
        prompt = wanted.message(member.name, message_id, LEAD)
        context.post.mailbox(member.name).put(prompt)
    return member is None


def _warn_person(context: TeamContext, spawned: Member, lacks: str) -> None:
    """Mail warnings about a declared teammate: no command waits that could print them."""
    about_copy = f"in the working copy of {spawned.name}, {lacks}" if lacks else ""
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
    # In this order: mail that is taken meanwhile is then in the conversation.
    waiting = context.post.mailbox(name).waiting()
    return not waiting and not files.size(context.settings.paths.transcript(name))


def _prompt_id(paths: TeamPaths, declared: SpawnRequest) -> str:
    """Return the id of a declared teammate's prompt; it stays the same until the teammate works.

    If a supervisor dies after it has sent the prompt, the next one sends it again; under the same
    id that is one message. If the teammate has worked since, and was removed from the roster by
    hand, its conversation is longer and the prompt is a new message.

    Raises:
        StoreError: the conversation cannot be read.
    """
    spoken = files.size(paths.transcript(declared.name))
    facts = [paths.own_name, declared.name, declared.prompt, spoken]
    return f"declared-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}"


def spawn_in_place(
    context: TeamContext,
    wanted: SpawnRequest,
    message_id: str,
    *,
    sender: str = LEAD,
    then: Callable[[Member, str], None],
    refuse: Callable[[TeamError], None],
) -> None:
    """Spawn a teammate, at once or when its working copy is made.

    Args:
        context: the team.
        wanted: the teammate.
        message_id: as for `spawn`.
        sender: as for `spawn`.
        then: called with the member, and a sentence about files that are not in its copy.
        refuse: called instead if the copy cannot be made, or if a later step fails.

    Raises:
        TeamError: as for `spawn`; no copy was begun.
    """
    member = context.roster.team.find(wanted.name)
    name = member.name if member else wanted.name
    worktree = _wants_copy(context, member, wanted)
    wanted = replace(wanted, name=name, worktree=worktree)
    if not worktree or record.find(context.settings.paths, name) is not None:
        then(spawn(context, wanted, message_id, sender=sender), "")
        return
    check(context, name, member, wanted)

    def end(outcome: CopyOutcome) -> None:
        if outcome.killed:
            _take_back(context, name)
        if outcome.error:
            refuse(TeamError(f"{name} was not spawned: {outcome.error}"))
            return
        try:
            then(spawn(context, wanted, message_id, sender=sender), outcome.lacks)
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
    """Remove a copy that is unused or incomplete."""
    settings = context.settings
    try:
        clone.remove_copy(settings.paths, name, settings.now.team.workspace)
    except (TeamError, OSError) as error:
        context.journal.error("working copy not removed", error, name=name)
