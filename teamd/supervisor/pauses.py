"""Interrupts and pauses: a teammate's turn ends at once, or it rests until it is resumed."""

from __future__ import annotations

from teamd.control import ControlReply, ControlRequest
from teamd.errors import NotAMessage, TeamError, Unsynced
from teamd.hosts.address import is_far
from teamd.messages import INTERRUPT_TYPE, USER, Message, again
from teamd.states import Status
from teamd.supervisor.team_context import TeamContext
from teamd.team.member import Member


def interrupt(context: TeamContext, request: ControlRequest) -> ControlReply:
    """Break off a teammate's turn; what it is told stands in its inbox before it hears of it.

    Raises:
        TeamError: there is no turn, or the inbox cannot be written.
    """
    member = _find(context, request, "interrupt")
    text = request.arguments.get("text", "")
    if not isinstance(text, str):
        raise NotAMessage("an interrupt's text is a text")
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
    except Unsynced as error:  # it stands there, and is read, unless the power goes now
        context.journal.error("interrupt not synced", error, name=member.name)
    context.children.interrupt(member.name)
    context.children.ring([member.name])
    context.journal.note("interrupted", name=member.name, message=message.id)
    said = _describe(member, told=bool(text.strip()))
    return ControlReply(text=said, data={"name": member.name, "message_id": message.id})


def _describe(member: Member, *, told: bool) -> str:
    """Say what an interrupt came to: as the roster has it, who is idle had nothing to break off."""
    if member.status is Status.IDLE:
        said = f"{member.name} was idle; it reads your text now"
    else:
        said = f"{member.name} is interrupted" + (", and reads your text next" if told else "")
    return said if member.pause is None else f"{said}; it is {member.pause}"


def pause(context: TeamContext, request: ControlRequest) -> ControlReply:
    """Have a teammate rest from the end of its step on; the roster says so, whoever is killed.

    Raises:
        TeamError: it does not run, or the roster cannot be written.
    """
    member = _find(context, request, "pause")
    name = member.name
    if context.children.ending(name) or context.shutdowns.pending(name):
        raise TeamError(f"{name} is being shut down; there is nothing to pause")
    if member.paused_by != USER:  # what the person wants, the person alone takes back
        context.roster.change(name, paused_by=request.sender)
        try:
            context.roster.publish()
        except TeamError:
            context.roster.restore(name, member)
            raise
        context.journal.note("paused", name=name, by=request.sender)
    context.children.ring([name])
    text = f"{name} is paused until `teamctl resume {name}`; mail waits"
    if member.status is Status.WORKING:
        text = f"{name} pauses once its step has ended, until `teamctl resume {name}`; mail waits"
    data = {"member": context.roster.team.get(name).encode()}
    return ControlReply(text=context.settings.paths.addressed(text), data=data)


def lift(context: TeamContext, member: Member, *, by: str) -> bool:
    """End the pause that somebody has asked for; return whether there was one.

    Raises:
        TeamError: it is not theirs to end, or the roster cannot be written.
    """
    name = member.name
    if by not in (USER, member.paused_by):
        hint = f"ask the person for `teamctl resume {name}`"
        raise TeamError(f"{name} was not paused by you, and you cannot resume it; {hint}")
    if member.paused_by is None:
        return False
    why = context.settings.paths.addressed(member.pause or "")
    values = {"status": Status.WORKING, "reason": None} if member.reason == why else {}
    context.roster.change(name, paused_by=None, **values)
    try:
        context.roster.publish()
    except TeamError:
        context.roster.restore(name, member)
        raise
    context.children.ring([name])
    return True


def _find(context: TeamContext, request: ControlRequest, what: str) -> Member:
    """Return the teammate that is meant, which has a process.

    Raises:
        TeamError: there is none, or it is the one that asks.
    """
    member = context.roster.team.get(request.text("name"))
    if request.sender == member.name:
        raise TeamError(f"you cannot {what} yourself; end your turn instead")
    led = request.sender == member.spawned_by or is_far(request.sender)  # which `allow` decides
    if "@" in request.sender and not led:
        raise TeamError(f"{member.name} is led by another; only who leads it can {what} it")
    if not member.status.wants_process:
        hint = f"{again(member.name)} starts it again"
        raise TeamError(f"{member.name} is {member.status}; there is nothing to {what}; {hint}")
    return member
