"""Tokens and cost as a table, and the notes below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from teamctl.render import output, tables
from teamctl.render.tables import FittedTable, Shape
from teamd.budget.limits import USD
from teamd.overview.usage import PER_DAY, PER_MONTH, Use

SHAPE: Final = Shape(
    elastic={"NAME": 12},
    dispensable=("WRITTEN", "READ", "LIMIT", "CALLS", "OUT", "IN", "USED"),
)
_HEADINGS: Final = ("NAME", "CALLS", "IN", "READ", "WRITTEN", "OUT", "COST", "LIMIT", "USED")


def usage_table(uses: Sequence[Use]) -> FittedTable:
    return tables.make_table(_HEADINGS, map(_cells, uses), _HEADINGS[1:], SHAPE)


def usage_notes(uses: Sequence[Use]) -> Iterator[str]:
    """Yield lines about raised limits, unknown prices and assumed use.

    Args:
        uses: the last one is the total.
    """
    for use in uses:
        for key, by in use.raised.items():
            if by:
                yield f"of the limit of {use.name}, `teamctl resume` added {_in_words(key, by)}"
    total = uses[-1].account
    if total.unpriced_calls:
        hint = '[prices."model-name"] in team.toml tells it for calls to come'
        bound = "and [limits] team_tokens_per_day bounds them without it"
        yield f"the price of {total.unpriced_calls} calls is not known; {hint}, {bound}"
    if total.assumed_calls:
        why = "were cut off, or their server did not tell what they took"
        most = "they count with the most that they may have taken"
        yield f"{total.assumed_calls} calls {why}: {most}"


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
