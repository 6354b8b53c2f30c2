"""The handlers of control requests: one function for each command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from typing import Any, Final

from teamd import settings
from teamd.budget.accounts import Terms
from teamd.budget.refusals import TOKENS, USD
from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode, NotAMessage, StoreError, TeamError
from teamd.messages import LEAD, USER
from teamd.sandbox.outside_git import explain_git
from teamd.settings.kinds import MAX_TOKENS, MAX_USD
from teamd.states import Status
from teamd.supervisor import pauses
from teamd.supervisor.copied import lacks_copy, settle_copy, spawn_with_copy
from teamd.supervisor.declared import spawn_declared
from teamd.supervisor.live_settings import when_it_counts
from teamd.supervisor.model_facts import describe_model
from teamd.supervisor.pricing import warn_of_price
from teamd.supervisor.removal import remove
from teamd.supervisor.shutdown import Outcome
from teamd.supervisor.spawn import (
    SpawnRequest,
    resume,
    spawn,
    spawn_lead,
)
from teamd.supervisor.team_context import TeamContext

Send = Callable[[ControlReply], None]

LONGEST_SECONDS: Final = 86_400
MOST: Final = {USD: MAX_USD, TOKENS: MAX_TOKENS}  # by which a limit is raised at a time
# From what went well to what needs somebody most: a teammate that rejected still runs.
_WORSE: Final = (ExitCode.DONE, ExitCode.DEADLINE, ExitCode.REFUSED)


def carry_out(context: TeamContext, request: ControlRequest, reply: Send) -> None:
    """Do what is asked; `reply` is called once, now or when it is done.

    Raises:
        TeamError: it is refused, or failed.
    """
    if request.command in _SLOW:
        _SLOW[request.command](context, request, reply)
    elif request.command in _AT_ONCE:
        reply(_AT_ONCE[request.command](context, request))
    else:
        known = ", ".join((*_SLOW, *_AT_ONCE))
        raise NotAMessage(f"teamd knows no request {request.command!r}; it knows: {known}")


def _spawn(context: TeamContext, request: ControlRequest, reply: Send) -> None:
    """Spawn a teammate; where it is to have a working copy, the reply comes once that is made."""
    wanted = settle_copy(context, SpawnRequest.decode(request))
    if not lacks_copy(context, wanted):
        reply(_begin(context, request, wanted))
        return
    spawn_with_copy(
        context,
        wanted,
        begin=lambda lacks: reply(_begin(context, request, wanted, lacks)),
        refuse=lambda error: reply(ControlReply.of_error(error)),
    )


def _begin(
    context: TeamContext, request: ControlRequest, wanted: SpawnRequest, lacks: str = ""
) -> ControlReply:
    leads = request.sender.partition("@")[0] == LEAD  # an agent, here or of another team
    sender = request.sender if leads else context.roster.team.person
    member = spawn(context, wanted, request.id, sender=sender)
    if member.status is Status.FAILED:
        raise TeamError(f"{member.name} could not be started: {member.reason}")
    now = context.settings.now
    no_git = "" if member.worktree else explain_git(now.tools, now.team.workspace)
    # A reason is such as: no process could be forked yet.
    first = context.program.warning() or member.reason or warn_of_price(context, member)
    warning = first or lacks or no_git
    data = {"member": member.encode(), "message_id": request.id, "warning": warning or None}
    text = f"{member.name} ({member.role}) is at work"
    if member.worktree:
        text += f" in {context.settings.paths.copy(member.name)}"
        if wanted.fresh:
            text += f"; the work in it stays, and `teamctl discard {member.name}` resets it"
    return ControlReply(text=text, data=data)


def _spawn_lead(context: TeamContext, request: ControlRequest) -> ControlReply:
    member = spawn_lead(context, fresh=request.flag("fresh"), model=request.model)
    warning = context.program.warning() or member.reason or warn_of_price(context, member)
    return ControlReply(text="lead is there", data={"member": member.encode(), "warning": warning})


def _resume(context: TeamContext, request: ControlRequest) -> ControlReply:
    name = context.roster.team.get(request.text("name")).name
    more = {unit: _amount(request, unit) for unit in MOST if unit in request.arguments}
    if more and request.sender != USER:  # an agent that could raise its limit would have none
        raise TeamError(f"only the person raises a limit; ask for `teamctl resume {name} --usd 1`")
    if pauses.lift(context, context.roster.team.get(name), by=request.sender) and not more:
        return _resumed(context, name)
    _reload_settings(context)
    warning = context.settings.waiting
    try:
        raised = resume(context, context.roster.team.get(name), more)
    except TeamError as error:  # a limit was raised, it may be, in a file that nobody confirmed
        raise TeamError(f"{error}; {warning}" if warning else str(error)) from error
    context.journal.note("resumed", name=name)
    text = "; ".join([f"{name} goes on", *(one.sentence() for one in raised)])
    data = {"raised": [one.encode() for one in raised], "warning": warning}
    return ControlReply(text=text, data=data)


def _resumed(context: TeamContext, name: str) -> ControlReply:
    """Reply that a pause is over; what else a teammate waits for is left to it."""
    context.journal.note("resumed", name=name)
    member = context.roster.team.get(name)
    text = f"{name} goes on"
    if member.status is Status.PAUSED:
        text = f"the pause of {name} is over, and it still waits: {member.reason}"
    return ControlReply(text=text, data={"raised": [], "warning": None})


def _amount(request: ControlRequest, unit: str) -> Decimal:
    """Return by how much a limit is to be raised.

    Raises:
        NotAMessage: it is no such number.
    """
    value: Any = request.arguments[unit]
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole or (unit == USD and isinstance(value, float))) or not 0 < value <= MOST[unit]:
        what = "a number" if unit == USD else "a whole number"
        raise NotAMessage(f"{unit} must be {what} above 0 and up to {MOST[unit]}")
    return Decimal(str(value))


def _reload(context: TeamContext, _: ControlRequest) -> ControlReply:
    lines = _reload_settings(context)
    spawned = [one for one in context.settings.now.teammates if spawn_declared(context, one)]
    lines += [f"{teammate.name} ({teammate.role}) is at work" for teammate in spawned]
    lines += filter(None, [context.settings.waiting])
    return ControlReply(text="\n".join(lines) or "nothing has changed", data={"lines": lines})


def _reload_settings(context: TeamContext) -> list[str]:
    """Read the settings again; a child that is forked from now on follows them."""
    found = context.settings.read()
    changed = settings.changes(context.settings.now, found.settings)
    # First, since it may fail, and then nothing changes.
    context.ledger.agree(Terms.of(found.settings))
    context.settings.apply(found)
    context.describe_sandbox()
    context.settings.note_waiting(context.journal)
    context.journal.note("reloaded", changed=changed)
    return [f"{key} has changed: {when_it_counts(key)}" for key in changed]


def _shut_down(context: TeamContext, request: ControlRequest, reply: Send) -> None:
    """Shut down all that are named, at the same time; the reply comes when each has ended."""
    names = _names(context, request)
    seconds = _seconds(request)
    asker = context.roster.team.person if request.sender == USER else request.sender
    outcomes: dict[str, Outcome] = {}

    def note(outcome: Outcome) -> None:
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
            note(Outcome(name=name, text=text, exit_code=ExitCode.REFUSED))
    if not names:
        reply(ControlReply(text="nobody is running"))


def _names(context: TeamContext, request: ControlRequest) -> list[str]:
    team = context.roster.team
    if request.flag("all"):
        return [m.name for m in team.members if m.status is not Status.SHUTDOWN]
    return [team.get(request.text("name")).name]


def _seconds(request: ControlRequest) -> float:
    value: Any = request.arguments.get("seconds")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= LONGEST_SECONDS:
        raise NotAMessage(f"a shutdown takes 0 to {LONGEST_SECONDS} seconds")
    return float(value)


def _summarize(outcomes: list[Outcome]) -> ControlReply:
    worst = max((outcome.exit_code for outcome in outcomes), key=_WORSE.index)
    members = [asdict(outcome) for outcome in outcomes]
    text = "\n".join(outcome.text for outcome in outcomes)
    return ControlReply(text=text, exit_code=worst, data={"members": members})


# One that is slow replies when it is done.
_SLOW: Final = {"spawn": _spawn, "shutdown": _shut_down}
_AT_ONCE: Final = {
    "lead": _spawn_lead,
    "interrupt": pauses.interrupt,
    "pause": pauses.pause,
    "resume": _resume,
    "remove": remove,
    "reload": _reload,
    "model": describe_model,
}
