"""The handlers of control requests: one function for each command."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from decimal import Decimal
from os import environ
from typing import Any, Final

from teamd.budget.accounts import Terms
from teamd.budget.limits import TOKENS, USD
from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode, NotAMessage, StoreError, TeamError, Unsynced
from teamd.hosts.places import is_far
from teamd.journal import LoggedEvent
from teamd.messages import INTERRUPT_TYPE, LEAD, USER, Message, respawn_command
from teamd.model_server import credentials
from teamd.model_server.connection import BASE_URL_VARIABLE, check_address, without_login
from teamd.model_server.credentials import digest_of
from teamd.sandbox.git_repository import explain_git
from teamd.settings.kinds import MAX_TOKENS, MAX_USD
from teamd.supervisor.lifecycle import State
from teamd.supervisor.live_settings import when_it_counts
from teamd.supervisor.pricing import warn_of_price
from teamd.supervisor.shutdowns import ShutdownOutcome
from teamd.supervisor.spawn import (
    SpawnRequest,
    resume,
    spawn_declared,
    spawn_in_place,
    spawn_lead,
)
from teamd.supervisor.team_context import TeamContext
from teamd.team.member import Member
from teamd.team.states import Status


def describe_model(context: TeamContext, request: ControlRequest) -> ControlReply:
    """Describe the model and the key that teammates use, without the key and without a request.

    Raises:
        NotAMessage: no salt is given.
    """
    model, salt = context.settings.now.model, request.text("salt")
    missing, key = context.program.warning(), credentials.in_environment()
    digest = None if key is None or model.key_command else digest_of(key, salt)
    url = model.base_url or environ.get(BASE_URL_VARIABLE) or ""
    facts = {
        "model": model.name,
        "base_url": without_login(url).rstrip("/"),
        "key": missing is None,
        "key_digest": digest,
    }
    source = "by its key_command" if model.key_command else "in its environment"
    text = (
        f"teamd has a key {source}, for {model.name}" if missing is None else f"teamd has {missing}"
    )
    return ControlReply(text=text, data=facts)


def remove(context: TeamContext, request: ControlRequest) -> ControlReply:
    """Remove a teammate from the roster; its files stay.

    Raises:
        TeamError: it still runs, or the roster cannot be written.
    """
    member = context.roster.team.get(request.text("name"))
    name = member.name
    if request.sender != USER:
        raise TeamError("only the person can remove a teammate from the team")
    running = context.children.state(name) is not State.ABSENT or context.shutdowns.pending(name)
    if member.status.wants_process or running:
        hint = f"`teamctl shutdown {name}` ends it first"
        raise TeamError(f"{name} is {member.status} and still in the team; {hint}")
    context.roster.remove(name)
    context.roster.publish_or_restore(name, member)
    context.journal.note("removed", name=name)
    text = f"{name} is no longer in the team"
    declared = (one.name.lower() for one in context.settings.now.teammates)
    if name.lower() in declared and name != LEAD:
        text += "; team.toml names it, so the next start or `teamd reload` spawns it again"
    return ControlReply(text=text, data={"name": name})


def interrupt(context: TeamContext, request: ControlRequest) -> ControlReply:
    """Interrupt a teammate's turn; the text is in its inbox before it is signalled.

    Raises:
        TeamError: it has no turn to interrupt, or the inbox cannot be written.
    """
    member = _find(context, request, "interrupt")
    text = request.arguments.get("text", "")
    if not isinstance(text, str):
        raise NotAMessage("the text of an interrupt must be a string")
    if member.status is Status.IDLE and not text.strip():
        raise TeamError(
            f"{member.name} is idle; there is nothing to interrupt: `teamctl send` reaches it"
        )
    person = context.roster.team.person
    sender = person if request.sender == USER else request.sender
    message = Message(
        id=request.id, type=INTERRUPT_TYPE, sender=sender, to=member.name, content=text
    )
    try:
        context.post.mailbox(member.name).put(message)
    except Unsynced as error:  # it is in the inbox, unless the power fails now
        context.journal.error("interrupt not synced", error, name=member.name)
    context.children.interrupt(member.name)
    context.children.ring([member.name])
    context.journal.note("interrupted", name=member.name, message=message.id)
    said = _describe(member, told=bool(text.strip()))
    return ControlReply(text=said, data={"name": member.name, "message_id": message.id})


def _describe(member: Member, *, told: bool) -> str:
    """Describe the effect of an interrupt by the status in the roster."""
    if member.status is Status.IDLE:
        said = f"{member.name} was idle; it reads your text now"
    else:
        said = f"{member.name} is interrupted" + (", and reads your text next" if told else "")
    return said if member.pause is None else f"{said}; it is {member.pause}"


def pause(context: TeamContext, request: ControlRequest) -> ControlReply:
    """Pause a teammate at the end of its step; the roster records it, so that it survives kills.

    Raises:
        TeamError: it does not run, or the roster cannot be written.
    """
    member = _find(context, request, "pause")
    name = member.name
    if context.children.ending(name) or context.shutdowns.pending(name):
        raise TeamError(f"{name} is being shut down; there is nothing to pause")
    if member.paused_by != USER:  # only the person ends the person's pause
        context.roster.change(name, paused_by=request.sender)
        context.roster.publish_or_restore(name, member)
        context.journal.note("paused", name=name, by=request.sender)
    context.children.ring([name])
    text = f"{name} is paused until `teamctl resume {name}`; mail waits"
    if member.status is Status.WORKING:
        text = f"{name} pauses once its step has ended, until `teamctl resume {name}`; mail waits"
    data = {"member": context.roster.team.get(name).encode()}
    return ControlReply(text=context.settings.paths.add_team_option(text), data=data)


def end_pause(context: TeamContext, member: Member, *, by: str) -> bool:
    """End a requested pause; return whether there was one.

    Raises:
        TeamError: `by` may not end it, or the roster cannot be written.
    """
    name = member.name
    if by not in (USER, member.paused_by):
        hint = f"ask the person for `teamctl resume {name}`"
        raise TeamError(f"{name} was not paused by you, and you cannot resume it; {hint}")
    if member.paused_by is None:
        return False
    why = context.settings.paths.add_team_option(member.pause or "")
    values = {"status": Status.WORKING, "reason": None} if member.reason == why else {}
    context.roster.change(name, paused_by=None, **values)
    context.roster.publish_or_restore(name, member)
    context.children.ring([name])
    return True


def _find(context: TeamContext, request: ControlRequest, verb: str) -> Member:
    """Return the teammate that the request names.

    Raises:
        TeamError: it has no process or another leader, or sent the request itself.
    """
    member = context.roster.team.get(request.text("name"))
    if request.sender == member.name:
        raise TeamError(f"you cannot {verb} yourself; end your turn instead")
    led = request.sender == member.spawned_by or is_far(request.sender)  # `allow` admitted it
    if "@" in request.sender and not led:
        raise TeamError(f"{member.name} has another leader; only its leader can {verb} it")
    if not member.status.wants_process:
        hint = f"{respawn_command(member.name)} starts it again"
        raise TeamError(f"{member.name} is {member.status}; there is nothing to {verb}; {hint}")
    return member


Send = Callable[[ControlReply], None]

LONGEST_SECONDS: Final = 86_400
MOST: Final = {USD: MAX_USD, TOKENS: MAX_TOKENS}  # the most by which a request raises a limit
# From good to bad: a teammate that rejected a shutdown still runs.
_WORSE: Final = (ExitCode.DONE, ExitCode.DEADLINE, ExitCode.REFUSED)


def carry_out(context: TeamContext, request: ControlRequest, reply: Send) -> None:
    """Carry out a request; `reply` is called once, now or later.

    Raises:
        TeamError: it is refused, or failed.
    """
    if request.command in _SLOW:
        _SLOW[request.command](context, request, reply)
    elif request.command in _AT_ONCE:
        reply(_AT_ONCE[request.command](context, request))
    else:
        known = ", ".join((*_SLOW, *_AT_ONCE))
        raise NotAMessage(f"teamd does not know the request {request.command!r}; it knows: {known}")


def _spawn(context: TeamContext, request: ControlRequest, reply: Send) -> None:
    """Spawn a teammate; if it needs a working copy, the reply comes once that is made."""
    leads = request.sender.partition("@")[0] == LEAD  # an agent, here or of another team
    spawn_in_place(
        context,
        SpawnRequest.decode(request),
        request.id,
        sender=request.sender if leads else context.roster.team.person,
        then=lambda member, lacks: reply(_describe_spawned(context, request, member, lacks)),
        refuse=lambda error: reply(ControlReply.of_error(error)),
    )


def _describe_spawned(
    context: TeamContext, request: ControlRequest, member: Member, lacks: str
) -> ControlReply:
    if member.status is Status.FAILED:
        raise TeamError(f"{member.name} could not be started: {member.reason}")
    now = context.settings.now
    no_git = "" if member.worktree else explain_git(now.tools, now.team.workspace)
    # `member.reason` may be that no process could be forked yet.
    first = context.program.warning() or member.reason or warn_of_price(context, member)
    warning = first or lacks or no_git
    data = {"member": member.encode(), "message_id": request.id, "warning": warning or None}
    text = f"{member.name} ({member.role}) is at work"
    if member.worktree:
        text += f" in {context.settings.paths.copy(member.name)}"
        if request.flag("fresh"):
            text += f"; the work in it stays, and `teamctl discard {member.name}` resets it"
    return ControlReply(text=text, data=data)


def _spawn_lead(context: TeamContext, request: ControlRequest) -> ControlReply:
    handed = _describe_handed_mail(context)
    member = spawn_lead(context, fresh=request.flag("fresh"), model=request.model)
    warning = context.program.warning() or member.reason or warn_of_price(context, member)
    warning = "; ".join(filter(None, (handed, warning))) or None
    return ControlReply(text="lead is there", data={"member": member.encode(), "warning": warning})


def _describe_handed_mail(context: TeamContext) -> str | None:
    """Describe the person's unread mail that the agent reads once it leads; `None` if none."""
    if context.roster.team.person != LEAD:
        return None
    with suppress(StoreError):
        if count := context.post.mailbox(LEAD).queued():
            unread = "1 message" if count == 1 else f"{count} messages"
            return (
                f"lead, who leads now, gets {unread} that you had not read; "
                f"`teamctl transcript {LEAD}` shows all"
            )
    return None


def _resume(context: TeamContext, request: ControlRequest) -> ControlReply:
    name = context.roster.team.get(request.text("name")).name
    more = {unit: _amount(request, unit) for unit in MOST if unit in request.arguments}
    if more and request.sender != USER:  # an agent that could raise its limit would have none
        raise TeamError(
            f"only the person can raise a limit; ask for `teamctl resume {name} --usd 1`"
        )
    if end_pause(context, context.roster.team.get(name), by=request.sender) and not more:
        return _resumed(context, name)
    _reload_settings(context)
    warning = context.settings.waiting
    try:
        raised = resume(context, context.roster.team.get(name), more)
    except TeamError as error:  # the person may have raised a limit in a file without trust
        raise TeamError(f"{error}; {warning}" if warning else str(error)) from error
    context.journal.note(LoggedEvent.RESUMED, name=name)
    text = "; ".join([f"{name} goes on", *(one.sentence() for one in raised)])
    data = {"raised": [one.encode() for one in raised], "warning": warning}
    return ControlReply(text=text, data=data)


def _resumed(context: TeamContext, name: str) -> ControlReply:
    """Reply that a pause is over; the teammate may still wait for something else."""
    context.journal.note(LoggedEvent.RESUMED, name=name)
    member = context.roster.team.get(name)
    text = f"{name} goes on"
    if member.status is Status.PAUSED:
        text = f"the pause of {name} is over, and it still waits: {member.reason}"
    return ControlReply(text=text, data={"raised": [], "warning": None})


def _amount(request: ControlRequest, unit: str) -> Decimal:
    """Return the amount by which to raise a limit.

    Raises:
        NotAMessage: it is not a number in the allowed range.
    """
    value: Any = request.arguments[unit]
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole or (unit == USD and isinstance(value, float))) or not 0 < value <= MOST[unit]:
        kind = "a number" if unit == USD else "a whole number"
        raise NotAMessage(f"{unit} must be {kind} above 0 and up to {MOST[unit]}")
    return Decimal(str(value))


def _reload(context: TeamContext, _: ControlRequest) -> ControlReply:
    lines = _reload_settings(context)
    spawned = [one for one in context.settings.now.teammates if spawn_declared(context, one)]
    lines += [f"{teammate.name} ({teammate.role}) is at work" for teammate in spawned]
    lines += filter(None, [context.settings.waiting])
    return ControlReply(text="\n".join(lines) or "nothing has changed", data={"lines": lines})


def _reload_settings(context: TeamContext) -> list[str]:
    """Read the settings again; children that are forked from now on follow them."""
    found = context.settings.read()
    if found.settings.model.asks_server:
        check_address(found.settings.model.base_url)
    changed = context.settings.changes_of(found)
    # First, since it may fail.
    context.ledger.agree(Terms.of(found.settings))
    context.settings.apply(found)
    context.describe_settings()
    context.settings.note_waiting(context.journal)
    context.journal.note(LoggedEvent.RELOADED, changed=changed)
    return [f"{key} has changed: {when_it_counts(key)}" for key in changed]


def _shut_down(context: TeamContext, request: ControlRequest, reply: Send) -> None:
    """Shut down the named teammates at the same time; the reply comes when all have ended."""
    names = _names(context, request)
    seconds = _seconds(request)
    asker = context.roster.team.person if request.sender == USER else request.sender
    outcomes: dict[str, ShutdownOutcome] = {}

    def note(outcome: ShutdownOutcome) -> None:
        outcomes[outcome.name] = outcome
        if len(outcomes) == len(names):
            reply(_summarize([outcomes[name] for name in names]))

    for name in names:
        if request.flag("force"):
            context.shutdowns.force(name, then=note)
            continue
        try:
            context.shutdowns.ask(
                name, asker=asker, seconds=seconds, then=note, by_mail=request.by_mail
            )
        except StoreError as error:
            text = f"{name} could not be asked: {error}"
            if request.by_mail:
                context.roster.tell_lead(text, to=asker, key=request.id)
            note(ShutdownOutcome(name=name, text=text, exit_code=ExitCode.REFUSED))
    if not names:
        reply(ControlReply(text="nobody is running"))


def _names(context: TeamContext, request: ControlRequest) -> list[str]:
    team = context.roster.team
    if request.flag("all"):
        return [m.name for m in team.members if m.status is not Status.SHUTDOWN]
    names = request.arguments.get("names") or [request.text("name")]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise NotAMessage("the names of a shutdown must be a list of strings")
    return list(dict.fromkeys(team.get(name).name for name in names))


def _seconds(request: ControlRequest) -> float:
    value: Any = request.arguments.get("seconds")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= LONGEST_SECONDS:
        raise NotAMessage(f"the deadline of a shutdown must be 0 to {LONGEST_SECONDS} seconds")
    return float(value)


def _summarize(outcomes: list[ShutdownOutcome]) -> ControlReply:
    worst = max((outcome.exit_code for outcome in outcomes), key=_WORSE.index)
    members = [asdict(outcome) for outcome in outcomes]
    text = "\n".join(outcome.text for outcome in outcomes)
    return ControlReply(text=text, exit_code=worst, data={"members": members})


# Slow handlers reply later.
_SLOW: Final = {"spawn": _spawn, "shutdown": _shut_down}
_AT_ONCE: Final = {
    "lead": _spawn_lead,
    "interrupt": interrupt,
    "pause": pause,
    "resume": _resume,
    "remove": remove,
    "reload": _reload,
    "model": describe_model,
}
