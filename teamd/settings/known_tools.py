"""The tools that teammates may have, as known to settings, permissions and user interfaces.

Each tool is a class in `teamd.tools` with the same `name`. This module imports nothing, so that a
command which only reads settings loads no tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTool:
    """A tool without its code.

    Attributes:
        acts: whether it changes more than the team's own mail and records, so that a teammate that
            works by plan needs an approved one.
        repeatable: whether a call may run again if it is not known how far it got: it has the key
            of the first call, or notices that the work is done.
        looks: whether a call only reads, so that it leaves no trace anywhere.
        changes: whether every successful call changes a file. A command may change one or not.
        grantable: whether it reaches the workspace. A role's list of tools grants such tools; the
            others belong to every member of the team, and a role has to drop them by name.
        holder: the only members that have it: the `lead`, each `teammate` that does not lead, or
            an `approver` of the settings; empty for everybody.
        for_subagents: whether subagents have it, too.
        verb: how an interface describes a call, followed by the value of `about`; empty for `uses
            NAME`.
        about: the argument that identifies a call for people.
        guards: whether rules may name its `command` or its `path`; empty for neither.
        basic: whether it belongs to the small set of `[model] tools = "basic"`.
        aliases: its names in role files of other programs.
    """

    acts: bool
    repeatable: bool = False
    looks: bool = False
    changes: bool = False
    grantable: bool = False
    holder: str = ""
    for_subagents: bool = False
    verb: str = ""
    about: str = ""
    guards: str = ""
    basic: bool = False
    aliases: tuple[str, ...] = ()


def _on_file(verb: str, *aliases: str, acts: bool, basic: bool = False) -> KnownTool:
    """A tool that reads or changes the file at its `path`."""
    return KnownTool(
        acts=acts,
        repeatable=not acts,
        looks=not acts,
        changes=acts,
        grantable=True,
        for_subagents=True,
        verb=verb,
        about="path",
        guards="path",
        basic=basic,
        aliases=aliases,
    )


def _of_team(holder: str = "", *, repeatable: bool = True, **facts: Any) -> KnownTool:
    """A tool that changes at most the team's own mail and records."""
    return KnownTool(acts=False, repeatable=repeatable, holder=holder, **facts)


UNKNOWN: Final = KnownTool(acts=True)
MISSING: Final = KnownTool(acts=False, repeatable=True, looks=True)
# In the order in which a model reads of them.
TOOLS: Final = {
    "bash": KnownTool(
        acts=True,
        grantable=True,
        verb="runs",
        about="command",
        guards="command",
        basic=True,
        for_subagents=True,
        aliases=("Bash",),
    ),
    "read_file": _on_file("reads", "Read", acts=False, basic=True),
    "write_file": _on_file("writes", "Write", acts=True, basic=True),
    "edit_file": _on_file("edits", "Edit", "MultiEdit", acts=True, basic=True),
    "send_message": _of_team(basic=True),
    "read_inbox": _of_team(),
    "task_create": _of_team(),
    "task_get": _of_team(looks=True),
    "task_update": _of_team(),
    "task_list": _of_team(looks=True),
    "claim_task": _of_team(verb="claims task", about="task_id"),
    "submit_plan": _of_team("teammate"),
    "shutdown_response": _of_team(),
    "background_run": KnownTool(acts=True, grantable=True, guards="command", aliases=("Bash",)),
    "check_background": KnownTool(acts=False, repeatable=True, grantable=True, aliases=("Bash",)),
    "stop_background": KnownTool(acts=False, repeatable=True, grantable=True, aliases=("Bash",)),
    "load_skill": _of_team(for_subagents=True),
    "spawn_teammate": _of_team("lead"),
    "list_teammates": _of_team("lead", looks=True),
    "broadcast": _of_team("lead"),
    "shutdown_request": _of_team("lead"),
    "interrupt_teammate": _of_team("lead"),
    "pause_teammate": _of_team("lead"),
    "resume_teammate": _of_team("lead"),
    "review_plan": _of_team("lead"),
    "review_permission": _of_team("approver"),
    "task": _of_team("lead", repeatable=False),
    "create_team": _of_team("lead", repeatable=False),
    "delete_team": _of_team("lead", repeatable=False),
}
BASIC_TOOLS: Final = frozenset(name for name, tool in TOOLS.items() if tool.basic)


def list_guarded(argument: str) -> tuple[str, ...]:
    """Return the tools whose `command` or `path` a rule may match."""
    return tuple(name for name, tool in TOOLS.items() if tool.guards == argument)


def resolve_alias(alias: str) -> tuple[str, ...]:
    """Return the tools that a role file means by a name; an unknown name is returned unchanged."""
    return tuple(name for name, tool in TOOLS.items() if alias in tool.aliases) or (alias,)
