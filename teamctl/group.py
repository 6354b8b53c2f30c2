"""`teamctl` as click has it: one group that lists all commands and loads the one that is called."""

from __future__ import annotations

from teamctl.commands import COMMANDS, load
from teamctl.examples import EXAMPLES
from teamd.click_commands import (
    TellingGroup,
    add_examples,
    group_to_click,
    program_to_click,
    to_click,
)
from teamd.commandline import Group, group, team_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

    from teamd.cli import Choice


class LazyGroup(TellingGroup):
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

    def describe_known(self, ctx: click.Context) -> str:  # noqa: ARG002 -- click's
        """Say where all commands are listed: there are many."""
        return "`teamctl --help` lists them all"


@group(context_settings={"help_option_names": ["-h", "--help"]})
@team_options
def _declared(_: Choice) -> None:
    """Talk to a team of agents: spawn, send, look, shut down.

    `teamctl COMMAND --help` explains a command, `teamctl help TOPIC` a topic.
    """


cli = program_to_click(_declared, LazyGroup)
