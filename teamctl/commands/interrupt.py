"""Requests to teamd that stop a teammate's work: `teamctl interrupt` and `pause`."""

from __future__ import annotations

import re
import shlex
from functools import partial
from itertools import takewhile
from typing import Final

import click

from teamctl import arguments
from teamctl.actions import Outcome, TeamActions, act_on_each, act_where_it_is
from teamctl.render import output
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.team.roster import Roster

_ELSEWHERE: Final = re.compile(r"[\w-]+(@[\w-]+){1,2}")  # NAME@HOST or NAME@TEAM@HOST


@click.command()
@click.argument(
    "words", metavar="NAME... [TEXT]", nargs=-1, required=True, shell_complete=arguments.everywhere
)
@output.json_option
@team_options
def command(choice: TeamOptions, words: tuple[str, ...], *, as_json: bool) -> int:
    """Interrupt the turn of each NAME at once; they read TEXT next.

    The model's reply, a command or a wait ends within a second, and the teammate knows that it was
    interrupted. Without TEXT it is then idle, and reads mail as it arrives. Its background jobs go
    on. If TEXT is -, the command reads it from standard input. NAME@HOST is on another host,
    whose settings must let this one interrupt.
    """
    names, text = _split(choice, words)
    said = "" if text is None else arguments.text_or_stdin(text)

    def interrupt(name: str) -> Outcome:
        here = partial(TeamActions(choice).interrupt, text=said)
        return act_where_it_is(choice, name, "interrupt", here, text=said)

    return act_on_each(choice, names, interrupt, as_json=as_json)


def _split(choice: TeamOptions, words: tuple[str, ...]) -> tuple[list[str], str | None]:
    """Return the leading words that name members, at least one, and the text after them."""
    team = Roster(choice.existing()).read()
    known = takewhile(lambda word: team.find(word) is not None or _ELSEWHERE.fullmatch(word), words)
    names = list(known) or [words[0]]
    rest = words[len(names) :]
    if len(rest) > 1:
        call = shlex.join(["teamctl", "interrupt", *names, " ".join(rest)])
        raise click.UsageError(f"put a text of more than one word in quotes: {call}")
    return names, rest[0] if rest else None


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=arguments.everywhere)
@output.json_option
@team_options
def pause(choice: TeamOptions, names: tuple[str, ...], *, as_json: bool) -> int:
    """Pause NAMES until `teamctl resume NAME`, even across a restart of teamd.

    The current step finishes first: the model's reply, or the commands that a reply asked for.
    The turn stays open, mail waits in the inbox, and background jobs go on. `teamctl
    interrupt` cuts the step short, too. NAME@HOST is on another host, whose settings must let
    this one pause.
    """

    def pause_one(name: str) -> Outcome:
        return act_where_it_is(choice, name, "pause", TeamActions(choice).pause)

    return act_on_each(choice, names, pause_one, as_json=as_json)
