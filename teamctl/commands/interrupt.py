"""A teammate's turn, by requests to teamd: `teamctl interrupt` and `pause`."""

from __future__ import annotations

import click

from teamctl import arguments
from teamctl.actions import TeamActions, act_on_host, split_host
from teamctl.render import output
from teamd.command_line.options import TextCommand, team_options
from teamd.command_line.run import TeamOptions


@click.command(cls=TextCommand)
@click.argument("name", shell_complete=arguments.everywhere)
@click.argument("text", required=False)
@output.json_option
@team_options
def command(choice: TeamOptions, name: str, text: str | None, *, as_json: bool) -> None:
    """Interrupt the turn of NAME at once; it reads TEXT next.

    The model's reply, a command or a wait ends within a second, and the teammate knows that it was
    interrupted. Without TEXT it is idle then, and reads mail as it comes. Its background jobs go
    on. If TEXT is -, the command reads it from standard input. NAME@HOST is on another host,
    whose settings must let this one interrupt.
    """
    said = "" if text is None else arguments.text_or_stdin(text)
    name, host = split_host(choice, name)
    if host is None:
        outcome = TeamActions(choice).interrupt(name, said)
    else:
        outcome = act_on_host(choice, host, "interrupt", {"name": name, "text": said})
    outcome.print(as_json=as_json)


@click.command()
@click.argument("name", shell_complete=arguments.teammates)
@output.json_option
@team_options
def pause(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Have NAME rest until `teamctl resume NAME`, also after a restart of teamd.

    The step that runs comes to its end: the model's reply, or the commands that one asked for.
    What was under way stays so, mail waits in the inbox, and background jobs go on. `teamctl
    interrupt` ends the step as well.
    """
    TeamActions(choice).pause(name).print(as_json=as_json)
