"""A teammate's turn, by requests to teamd: `teamctl interrupt` and `pause`."""

from __future__ import annotations

import click

from teamctl import arguments
from teamctl.actions import Outcome, TeamActions, ask_host, print_answer, split_host
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
    if host is not None:
        asked, seconds = {"name": name, "text": said}, arguments.REQUEST_SECONDS
        answer = ask_host(choice, host, "interrupt", asked, seconds=seconds)
        print_answer(host, answer, as_json=as_json)
        return
    _print(TeamActions(choice).interrupt(name, said), as_json=as_json)


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
    _print(TeamActions(choice).pause(name), as_json=as_json)


def _print(outcome: Outcome, *, as_json: bool) -> None:
    output.print_either(outcome.text, outcome.data, as_json=as_json)
