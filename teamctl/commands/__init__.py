"""The commands, a file for each or for a noun; one is loaded when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click


# In the order of a day's work. The help is shown without loading any of them.
COMMANDS: Final = {
    "help": "Explain a topic, such as limits or roles, or list the topics.",
    "demo": "Watch a team build and test a small program; no key, no network.",
    "init": "Write a commented team.toml here.",
    "trust": "Let a team.toml loosen what agents may do.",
    "doctor": "Check machine, settings and key, and say how to fix them.",
    "chat": "Talk to the agent that leads the team.",
    "spawn": "Start or wake a teammate.",
    "team": "Show the members of the team and their states.",
    "show": "Show all about one teammate.",
    "ps": "List the processes of the team.",
    "top": "Show the team on the whole screen, and answer what waits.",
    "web": "Show the team as a page in the browser.",
    "send": "Send a message to a teammate.",
    "broadcast": "Send a message to every teammate.",
    "inbox": "Read your mail, or look at a teammate's.",
    "tasks": "Show the task board.",
    "task": "Add, show, change or claim a task.",
    "requests": "List the open requests, such as plans.",
    "approve": "Approve a request, by its id or by who asks.",
    "reject": "Reject a request, by its id or by who asks.",
    "transcript": "Show a teammate's conversation.",
    "logs": "Show the log of a teammate, or of teamd.",
    "events": "Show everything that happens in the team, for scripts.",
    "diff": "Show what a teammate did in its working copy.",
    "merge": "Merge what a teammate committed into your branch.",
    "discard": "Reset a teammate's working copy to its base.",
    "queue": "Show the merge queue, add to it, or remove from it.",
    "usage": "Show tokens and cost, and how much of the limits is used.",
    "interrupt": "Break off a teammate's turn, and say what it reads next.",
    "pause": "Have a teammate rest until it is resumed.",
    "resume": "Let a paused teammate go on.",
    "trace": "Show where a message is, by its id; list the latest.",
    "wait": "Wait until teammates are at work no more.",
    "shutdown": "Ask a teammate to end, or all of them.",
    "rm": "Take a teammate out of the team.",
    "teams": "List the teams of this project.",
    "create": "Create a team, and start its teamd.",
    "delete": "End a team, and delete its files.",
    "hosts": "Show the other hosts of the team, or set them up.",
    "prune": "Remove old logs, and the files of names that left the team.",
}

# Files that hold more commands than the one they are named after, which is their `command`.
SHARED: Final = {
    "diff": ("merge", "discard"),
    "interrupt": ("pause",),
    "requests": ("approve", "reject"),
    "send": ("broadcast",),
    "spawn": ("resume", "shutdown"),
    "teams": ("create", "delete"),
}


def load(name: str) -> click.Command:
    """Import a command of `COMMANDS` and return it."""
    home = next((file for file, others in SHARED.items() if name in others), None)
    module = import_module(f"{__name__}.{home or name}")
    found: click.Command = getattr(module, name if home else "command")
    return found
