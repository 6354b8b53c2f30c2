"""`teamctl` as click has it: one group that lists all commands and loads the one that is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from teamctl.commands import COMMANDS, load
from teamctl.examples import EXAMPLES
from teamd.click_commands import add_examples, group_to_click, program_to_click, to_click
from teamd.commandline import Group, group, team_options

if TYPE_CHECKING:
    from teamd.cli import Choice


class LazyGroup(click.Group):
    """Loads a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's
        """All commands, in the order of a day's work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        declared = load(cmd_name)
        made = group_to_click(declared) if isinstance(declared, Group) else to_click(declared)
        add_examples(made, EXAMPLES, cmd_name)
        return made

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands with their first lines."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelt one is told what is near."""
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches  # noqa: PLC0415 -- only for an unknown name

            near = get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`teamctl --help` lists them all"
            ctx.fail(f"no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)


@group(context_settings={"help_option_names": ["-h", "--help"]})
@team_options
def _declared(_: Choice) -> None:
    """Talk to a team of agents: spawn, send, look, shut down.

    `teamctl COMMAND --help` explains a command, `teamctl help TOPIC` a topic.
    """


cli = program_to_click(_declared, LazyGroup)
