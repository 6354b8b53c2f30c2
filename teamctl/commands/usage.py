"""`teamctl usage`: tokens and cost of each teammate, and the used share of the limits."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import click

from teamctl.render import output, tables
from teamctl.render.tables import Shape
from teamd.budget.ledger import Ledger
from teamd.budget.limits import USD
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.overview.usage import PER_DAY, PER_MONTH, Use, read_uses

_SHAPE = Shape(
    elastic={"NAME": 12},
    dispensable=("WRITTEN", "READ", "LIMIT", "CALLS", "OUT", "IN", "USED"),
)
_HEADINGS = ("NAME", "CALLS", "IN", "READ", "WRITTEN", "OUT", "COST", "LIMIT", "USED")


@click.command()
@output.json_option
@team_options
def command(choice: TeamOptions, *, as_json: bool) -> None:
    """Show the tokens and the cost of each teammate and of the team, since the team began.

    IN counts all tokens sent; READ and WRITTEN count those of them that came from the prompt
    cache or went into it. LIMIT is the nearest limit on tokens or money, of all time, this month or
    today, as `teamctl resume` has raised it, and USED is the used share. The command works without
    teamd.
    """
    paths = choice.existing()
    accounts = Ledger(paths.ledger).read()
    members, total = read_uses(paths, accounts)
    if as_json:
        named = [{"name": row.name, **row.to_json()} for row in members]
        output.print_json({"members": named, "total": total.to_json()})
        return
    rows = (_cells(row) for row in (*members, total))
    tables.print_table(_HEADINGS, rows, _HEADINGS[1:], _SHAPE)
    _print_notes((*members, total))


def _cells(use: Use) -> list[str]:
    """Return the cells of a line, with the nearest limit."""
    used, nearest = use.account, use.nearest
    sent = (used.input_tokens, used.cache_read_tokens, used.cache_write_tokens)
    tokens = map(output.count, (*sent, used.output_tokens))
    limit = "-" if nearest is None else _in_words(nearest.name, nearest.most)
    share = "-" if nearest is None else f"{nearest.share:.1%}"
    return [use.name, str(used.calls), *tokens, output.cost(used), limit, share]


def _in_words(key: str, most: Decimal) -> str:
    words = f"${most:.2f}" if key.startswith(USD) else f"{output.count(int(most))} tokens"
    if key.endswith(PER_MONTH):
        return f"{words} a month"
    return f"{words} a day" if key.endswith(PER_DAY) else words


def _print_notes(uses: Sequence[Use]) -> None:
    for use in uses:
        for key, by in use.raised.items():
            if by:
                click.echo(
                    f"of the limit of {use.name}, `teamctl resume` added {_in_words(key, by)}"
                )
    total = uses[-1].account
    if total.unpriced_calls:
        hint = '[prices."model-name"] in team.toml tells it for calls to come'
        bound = "and [limits] team_tokens_per_day bounds them without it"
        click.echo(f"the price of {total.unpriced_calls} calls is not known; {hint}, {bound}")
    if total.assumed_calls:
        why = "were cut off, or their server did not tell what they took"
        most = "they count with the most that they may have taken"
        click.echo(f"{total.assumed_calls} calls {why}: {most}")
