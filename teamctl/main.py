"""`teamctl`: one group; a command is loaded from its file when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from teamd.cli import Choice, run, team_options, version_option

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
    "send": "Send a message to a teammate.",
    "broadcast": "Send a message to every teammate.",
    "inbox": "Read your mail, or look at a teammate's.",
    "tasks": "Show the task board.",
    "task": "Add, show, change or claim a task.",
    "requests": "List the open requests, such as plans.",
    "approve": "Approve a request, by its id.",
    "reject": "Reject a request, by its id, with a reason.",
    "transcript": "Show a teammate's conversation.",
    "logs": "Show the log of a teammate, or of teamd.",
    "usage": "Show tokens and cost, and how much of the limits is used.",
    "resume": "Let a paused teammate go on.",
    "trace": "Show where a message is, by its id.",
    "shutdown": "Ask a teammate to end, or all of them.",
    "teams": "List the teams of this project.",
    "create": "Create a team, and start its teamd.",
    "delete": "End a team, and delete its files.",
    "prune": "Remove old logs, and the files of names that left the team.",
}

# Files that hold more commands than the one they are named after, which is their `command`.
SHARED: Final = {
    "logs": ("transcript",),
    "requests": ("approve", "reject"),
    "send": ("broadcast",),
    "spawn": ("resume", "shutdown"),
    "tasks": ("task",),
    "teams": ("create", "delete"),
}


class LazyGroup(click.Group):
    """Loads a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's
        """All commands, in the order of a day's work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        home = next((file for file, others in SHARED.items() if cmd_name in others), None)
        module = import_module(f"teamctl.commands.{home or cmd_name}")
        command: click.Command = getattr(module, cmd_name if home else "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands with their first lines."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelt one is told what is near."""
        from difflib import get_close_matches  # noqa: PLC0415 -- only where a name is not known

        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            near = get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`teamctl --help` lists them all"
            ctx.fail(f"no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@version_option
@team_options
def cli(_: Choice) -> None:
    """Talk to a team of agents: spawn, send, look, shut down.

    `teamctl COMMAND --help` explains a command, `teamctl help TOPIC` a topic.
    """


def main() -> None:
    """The entry point of `teamctl`."""
    run(cli, "teamctl")
