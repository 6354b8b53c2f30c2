"""Removal: a teammate that runs no more leaves the roster."""

from __future__ import annotations

from teamd.control import ControlReply, ControlRequest
from teamd.errors import TeamError
from teamd.messages import LEAD, USER
from teamd.supervisor.lifecycle import State
from teamd.supervisor.team_context import TeamContext


def remove(context: TeamContext, request: ControlRequest) -> ControlReply:
    """Take a teammate out of the roster; its files stay where they are.

    Raises:
        TeamError: it still runs, or the roster cannot be written.
    """
    member = context.roster.team.get(request.text("name"))
    name = member.name
    if request.sender != USER:
        raise TeamError("only the person takes somebody out of the team")
    running = context.children.state(name) is not State.ABSENT or context.shutdowns.pending(name)
    if member.status.wants_process or running:
        hint = f"`teamctl shutdown {name}` ends it first"
        raise TeamError(f"{name} is {member.status} and still in the team; {hint}")
    context.roster.remove(name)
    try:
        context.roster.publish()
    except TeamError:
        context.roster.restore(name, member)
        raise
    context.journal.note("removed", name=name)
    text = f"{name} is in the team no more"
    declared = (one.name.lower() for one in context.settings.now.teammates)
    if name.lower() in declared and name != LEAD:
        text += "; team.toml names it, so the next start or `teamd reload` spawns it again"
    return ControlReply(text=text, data={"name": name})
