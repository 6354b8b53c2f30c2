"""`teamctl usage`: tokens and cost of each teammate, and the used share of the limits."""

from __future__ import annotations

import click

from teamctl.render import output, tables
from teamctl.render.usage_table import usage_notes, usage_table
from teamd.budget.ledger import Ledger
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.overview.usage import read_uses


@click.command()
@output.json_option
@team_options
def command(choice: TeamOptions, *, as_json: bool) -> None:
    """Show the tokens and the cost of each teammate and of the team, since the team began.

    IN counts all tokens sent; READ and WRITTEN count those of them that came from the prompt
    cache or went into it. LIMIT is the nearest limit on tokens or money, of all time, this month or
    today, including raises by `teamctl resume`; USED is the used share. The command works without
    teamd.
    """
    paths = choice.existing()
    accounts = Ledger(paths.ledger).read()
    members, total = read_uses(paths, accounts)
    if as_json:
        named = [{"name": row.name, **row.to_json()} for row in members]
        output.print_json({"members": named, "total": total.to_json()})
        return
    uses = (*members, total)
    tables.console().print(usage_table(uses))
    for line in usage_notes(uses):
        click.echo(line)
