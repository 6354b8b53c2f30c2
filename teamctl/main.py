"""`teamctl`: one group of all commands; a command's module is imported when it is called."""

from __future__ import annotations

import click

from teamctl.commands import COMMANDS, EXAMPLES, GROUPS, MEANT, load
from teamd.command_line.options import SuggestingGroup, add_examples, team_options, version_option
from teamd.command_line.run import TeamOptions, run


class LazyGroup(SuggestingGroup):
    """Imports a command's module when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        command = load(cmd_name)
        add_examples(command, EXAMPLES, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's
        """List the commands by what a person wants to do."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])

    def describe_known(self, ctx: click.Context) -> str:  # noqa: ARG002 -- click's
        """Return a hint at the list of all commands, which are too many for one line."""
        return "`teamctl --help` lists them all"


@click.group(cls=LazyGroup, meant=MEANT, context_settings={"help_option_names": ["-h", "--help"]})
@version_option
@team_options
def cli(_: TeamOptions) -> None:
    """Talk to a team of agents: spawn, send, look, shut down.

    `teamctl COMMAND --help` explains a command, `teamctl help TOPIC` a topic.
    """


def main() -> None:
    """The entry point of `teamctl`."""
    run("teamctl", cli)
