"""Builds a teammate: its loop, the model that it asks, its tools, its role and its subagents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from teamd.agent.conversation import prompts
from teamd.agent.conversation.compaction import Compaction
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import system_prompt
from teamd.agent.delivery import Delivery
from teamd.agent.environment import Environment
from teamd.agent.loop import Loop
from teamd.agent.model_calls import TeammateModel
from teamd.agent.tools import TeammateTools, make_board
from teamd.agent.turn import Cancellation
from teamd.agent.work import claim_next, list_open_work
from teamd.errors import SettingsError, TeamError
from teamd.files.paths import TeamPaths
from teamd.messages import new_id, without_surrogates
from teamd.settings import roles
from teamd.settings.skills import Skill
from teamd.tools import Toolbox, ToolError, make_tools
from teamd.tools.skills import LoadSkill
from teamd.tools.workspace import Workspace
from teamd.transcript.records import NewsAdded, Opened

FILE_NAMES: Final = ("AGENTS.md", "CLAUDE.md")  # the first that is there counts
MAX_BYTES: Final = 65_536
_HEAD: Final = "\n\n{name} of the workspace, which holds for everybody who works in it:\n\n"


def read_project_instructions(workspace: Workspace) -> str:
    """Return the text of `AGENTS.md`, else of `CLAUDE.md`, to be added to the system prompt.

    Bytes that are not UTF-8 are replaced, and the text is cut at `MAX_BYTES` with a note. A link
    out of the workspace is not followed: anyone who can write there could read other files with it.
    """
    return next(filter(None, (_read(workspace, name) for name in FILE_NAMES)), "")


def _read(workspace: Workspace, name: str) -> str:
    """Return the text of one file below its heading; empty if the file is missing."""
    try:
        fd = workspace.open(workspace.resolve(name))
    except (OSError, ToolError):
        return ""
    with os.fdopen(fd, "rb") as file:
        data = file.read(MAX_BYTES + 1)
        size = os.fstat(fd).st_size
    text = data[:MAX_BYTES].decode("utf-8-sig", "replace").replace("\0", "\ufffd").strip()
    if len(data) > MAX_BYTES:
        text += f"\n[cut here: {name} has {size} bytes; read the rest with read_file]"
    return f"{_HEAD.format(name=name)}{text}" if text else ""


def build_loop(env: Environment) -> Loop:
    """Assemble a teammate from its settings and its role; nothing runs yet."""
    tools, turn = TeammateTools(env, TeammateModel(env)), Cancellation()
    compaction = Compaction(
        conversation=env.conversation,
        model=tools.model.calls_of(env.conversation, live=env.leads),
        toolbox=Toolbox(
            make_tools(tools.context),
            gate=env.plans.refusal,
            permit=env.permissions.check,
            mask=env.mask,
        ),
        settings=env.settings.model,
        model_name=partial(_model_name, env),
        effort=partial(_effort, env),
        server=tools.model.server,
        facts=tools.model.facts,
        asker=env.name,
        open_work=partial(list_open_work, env.name, tools.board, env.approvals, env.roster),
    )
    opening = lambda: _opening(env, tools.find_skills())  # noqa: E731 -- one line

    def news() -> Iterator[NewsAdded]:
        yield from tools.news()
        if compaction.system_notes and env.conversation.owes_reply:
            yield from _find_new_instructions(env.conversation, opening)

    delivery = Delivery(
        env=env,
        opening=opening,
        news=news,
        summarise=compaction.request,
        turn=turn,
    )
    return Loop(
        env=env,
        compaction=compaction,
        delivery=delivery,
        turn=turn,
        claim=_claim(env),
        calls=tools.calls,
        busy=tools.busy,
        learn_key=tools.model.learn_key,
    )


def reason_to_wake(env: Environment) -> Callable[[], bool]:
    """Return a function that tells whether a hibernating teammate has work."""
    claim = _claim(env)
    # A pause is reported, and nothing claimed then.
    return lambda: env.pause.why() is not None or env.mailbox.waiting() or claim()


def find_role(paths: TeamPaths, project: Path, role: str) -> roles.Role | None:
    """Return the contents of a role's file, or `None`.

    Raises:
        SettingsError: the file cannot be parsed.
    """
    return roles.find(role, roles.folders(paths.agents, project))


def _model_name(env: Environment, of_role: str | None) -> str:
    return env.roster.get(env.name).model or of_role or env.settings.model.name


def _effort(env: Environment, of_role: str | None) -> str:
    return env.roster.get(env.name).effort or of_role or env.settings.model.effort


def _claim(env: Environment) -> Callable[[], bool]:
    if env.leads or not env.settings.tasks.auto_claim:
        return lambda: False
    with suppress(SettingsError):  # reported when a conversation begins
        if "task_update" in _dropped_tools(env, _role(env)):  # it could not complete one
            return lambda: False
    role = lambda: env.roster.get(env.name).role  # noqa: E731 -- one line, used once
    return partial(claim_next, make_board(env), role, env.journal)


def _find_new_instructions(
    conversation: Conversation, opening: Callable[[], Opened]
) -> Iterator[NewsAdded]:
    """Yield the current instructions if they differ from the conversation's."""
    with suppress(TeamError):  # a role file that is being edited
        system = opening().system
        text = prompts.NEW_INSTRUCTIONS.format(instructions=system)
        known = conversation.instructions or prompts.NEW_INSTRUCTIONS.format(
            instructions=conversation.opened.system
        )
        if text != known:
            yield NewsAdded(about=f"instructions {new_id()}", text=text, instructions=True)


def _role(env: Environment) -> roles.Role:
    return find_role(env.paths, env.project, env.role) or roles.Role()


def _dropped_tools(env: Environment, role: roles.Role) -> frozenset[str]:
    return role.dropped_tools(env.settings.model.tools)


def _opening(env: Environment, found: Sequence[Skill]) -> Opened:
    member, role = env.roster.get(env.name), _role(env)
    dropped = _dropped_tools(env, role)
    opened = Opened(
        name=member.name,
        role=member.role,
        team=env.roster.team_name(),
        model=role.model,
        effort=role.effort,
        tools=role.tools,
        dropped=dropped,
        plan=member.plan,
        spawned_by=member.spawned_by,
    )
    folder, above = env.settings.team.workspace, env.post.above(env.name)
    prompt = system_prompt(
        opened,
        workspace=folder,
        shared=env.origin is None,
        above=above,
        host=env.settings.hosts.name,
        instructions=role.instructions,
        skills=() if LoadSkill.name in dropped else found,
    )
    # A copy's own files are the teammate's to change: it must not write its own instructions.
    project = Workspace(env.project, hidden=env.paths.off_limits(env.project))
    system = env.mask.text(prompt + read_project_instructions(project))
    # As it will be read from the transcript: a folder's name may be bytes that are not UTF-8.
    return replace(opened, system=without_surrogates(system))
