"""`teamctl transcript`: a conversation as a person reads it."""

from __future__ import annotations

import click

from teamctl import output
from teamctl.completion import teammates
from teamctl.render import render_record
from teamctl.tail import lines
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode, TeamError
from teamd.messages import USER
from teamd.team.roster import Roster
from teamd.transcript.decoding import decode_lines, parse


@click.command()
@click.argument("name", shell_complete=teammates)
@click.option("--follow", "-f", is_flag=True, help="Keep showing new entries.")
@click.option("--full", is_flag=True, help="Show long tool results in full.")
@output.json_option
@team_options
@pass_choice
def command(choice: Choice, name: str, *, follow: bool, full: bool, as_json: bool) -> int:
    """Show the conversation of NAME, or with `user` the mail that you have read."""
    if follow and as_json:
        raise click.UsageError("--follow never ends and --json is one document: take one of them")
    paths = choice.existing()
    name = USER if name.lower() == USER else Roster(paths).read().get(name).name
    path = paths.transcript(name)
    if not path.exists() and not follow:
        raise TeamError(f"{name} has no conversation yet")
    found = lines(path, last=None, follow=follow)
    if as_json:  # records just as they are, also those of a later version
        output.print_json({"name": name, "records": [*filter(None, map(parse, found))]})
        return ExitCode.DONE
    for record in decode_lines(found):
        for line in render_record(record, name, full=full):
            click.echo(line)
    return ExitCode.DONE
