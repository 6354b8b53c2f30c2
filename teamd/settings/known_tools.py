"""The tools that teammates may have, as known to settings, permissions and user interfaces.

Each tool is a class in `teamd.tools` with the same name. This module imports nothing, so that a
command which only reads settings loads no tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTool:
    """A tool without its code.

    Attributes:
        verb: how an interface describes a call, followed by the value of `about`; empty for `uses
            NAME`.
        about: the argument that identifies a call for people.
        guards: whether rules may name its `command` or its `path`; empty for neither.
        basic: whether it belongs to the small set of `[model] tools = "basic"`.
        aliases: its names in role files of other programs.
    """

    verb: str = ""
    about: str = ""
    guards: str = ""
    basic: bool = False
    aliases: tuple[str, ...] = ()


# In the order in which a model reads of them.
TOOLS: Final = {
    "bash": KnownTool(
        verb="runs", about="command", guards="command", basic=True, aliases=("Bash",)
    ),
    "read_file": KnownTool(
        verb="reads", about="path", guards="path", basic=True, aliases=("Read",)
    ),
    "write_file": KnownTool(
        verb="writes", about="path", guards="path", basic=True, aliases=("Write",)
    ),
    "edit_file": KnownTool(
        verb="edits", about="path", guards="path", basic=True, aliases=("Edit", "MultiEdit")
    ),
    "send_message": KnownTool(basic=True),
    "read_inbox": KnownTool(),
    "task_create": KnownTool(),
    "task_get": KnownTool(),
    "task_update": KnownTool(),
    "task_list": KnownTool(),
    "claim_task": KnownTool(verb="claims task", about="task_id"),
    "submit_plan": KnownTool(),
    "shutdown_response": KnownTool(),
    "background_run": KnownTool(guards="command", aliases=("Bash",)),
    "check_background": KnownTool(aliases=("Bash",)),
    "stop_background": KnownTool(aliases=("Bash",)),
    "load_skill": KnownTool(),
    "spawn_teammate": KnownTool(),
    "list_teammates": KnownTool(),
    "broadcast": KnownTool(),
    "shutdown_request": KnownTool(),
    "interrupt_teammate": KnownTool(),
    "pause_teammate": KnownTool(),
    "resume_teammate": KnownTool(),
    "review_plan": KnownTool(),
    "review_permission": KnownTool(),
    "task": KnownTool(),
    "create_team": KnownTool(),
    "delete_team": KnownTool(),
}
BASIC_TOOLS: Final = frozenset(name for name, tool in TOOLS.items() if tool.basic)


def list_guarded(argument: str) -> tuple[str, ...]:
    """Return the tools whose `command` or `path` a rule may match."""
    return tuple(name for name, tool in TOOLS.items() if tool.guards == argument)


def resolve_alias(alias: str) -> tuple[str, ...]:
    """Return the tools that a role file means by a name; an unknown name is returned unchanged."""
    return tuple(name for name, tool in TOOLS.items() if alias in tool.aliases) or (alias,)
