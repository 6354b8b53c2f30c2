"""The teammates that `team.toml` declares: each is spawned once."""

from __future__ import annotations

import hashlib
import json

from teamd.errors import TeamError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD
from teamd.settings import Teammate
from teamd.supervisor.copied import lacks_copy, settle_copy, spawn_with_copy
from teamd.supervisor.pricing import warn_of_price
from teamd.supervisor.spawn import SpawnRequest, spawn
from teamd.supervisor.team_context import TeamContext


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
