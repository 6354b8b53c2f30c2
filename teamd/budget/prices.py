"""The prices of tokens: the table shipped as `prices.toml`, and a person's own prices."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

from teamd.budget.accounts import Terms
from teamd.budget.limits import LIMITS, USD, in_words
from teamd.model_server import Usage

_SHIPPED: Final = Path(__file__).with_name("prices.toml")
PER_TOKENS: Final = 1_000_000
_READ: Final = Decimal("0.1")  # of the price of input, unless a price says otherwise
_WRITE: Final = Decimal("1.25")
_WRITE_HOUR: Final = Decimal(2)
# Suffixes that name the same model: claude-haiku-4-5-20251001, claude-sonnet-4-5@20250929,
# …-latest. A further number names another model: claude-opus-5-5 is not claude-opus-5.
_SAME_MODEL: Final = re.compile(r"(?:[-@:](?:latest|default|20\d{6}))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD per million tokens of each kind.

    Attributes:
        long_prompt_tokens: a prompt of more tokens than this, cached ones included, costs
            `long_prompt_factor` times as much, as does its reply; `None` if length does not matter.
    """

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_hour: Decimal
    long_prompt_tokens: Decimal | None = None
    long_prompt_factor: Decimal = Decimal(1)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Price:
        """Read a price from its table; only `input` and `output` are required."""
        given = {one.name: table.get(one.name) for one in fields(cls)}
        rates = {key: Decimal(str(value)) for key, value in given.items() if value is not None}
        rates.setdefault("cache_read", rates["input"] * _READ)
        rates.setdefault("cache_write", rates["input"] * _WRITE)
        rates.setdefault("cache_write_hour", rates["input"] * _WRITE_HOUR)
        return cls(**rates)

    def cost(self, usage: Usage) -> Decimal:
        """Return the cost of a reply, in USD."""
        hour = min(usage.cache_hour_tokens, usage.cache_write_tokens)
        total = (
            usage.input_tokens * self.input
            + usage.cache_read_tokens * self.cache_read
            + (usage.cache_write_tokens - hour) * self.cache_write
            + hour * self.cache_write_hour
            + usage.output_tokens * self.output
        )
        return total * self._factor(usage.total_input_tokens) / PER_TOKENS

    def most(self, input_tokens: int, output_tokens: int) -> Decimal:
        """The most that so many tokens can cost, whatever the cache does with them, in USD."""
        dearest = max(self.input, self.cache_read, self.cache_write, self.cache_write_hour)
        total = input_tokens * dearest + output_tokens * self.output
        return total * max(Decimal(1), self._factor(input_tokens)) / PER_TOKENS

    def _factor(self, input_tokens: int) -> Decimal:
        long = self.long_prompt_tokens is not None and input_tokens > self.long_prompt_tokens
        return self.long_prompt_factor if long else Decimal(1)


FREE: Final = Price.of({"input": 0, "output": 0})


class Prices:
    """Prices by the name of the model.

    Args:
        own: a person's prices, which override the shipped ones; as written in `team.toml`.
    """

    def __init__(self, own: Mapping[str, Mapping[str, Any]]) -> None:
        self._tables = [_parse(own), _shipped_prices()]

    def find(self, model: str) -> Price | None:
        """Return the price of a model, if it is known; a dated form of the name is also found."""
        for table in self._tables:
            named = [name for name in table if _names(name, model)]
            if named:
                return table[max(named, key=len)]
        return None


def find_small_limits(terms: Terms, models: Collection[str], max_tokens: int) -> Iterator[str]:
    """Yield a sentence for each limit that is below the price or length of the longest reply alone.

    Args:
        terms: the limits and the person's prices.
        models: those that may be asked; the cheapest counts, if all their prices are known.
        max_tokens: the longest reply.
    """
    prices = [price for one in models if (price := Prices(terms.prices).find(one)) is not None]
    most_usd = [price.most(0, max_tokens) for price in prices]
    usd = min(most_usd) if len(prices) == len(models) else Decimal(0)
    for limit in LIMITS:
        most = Decimal(getattr(terms, limit.name))
        least = usd if limit.unit == USD else Decimal(max_tokens)
        if 0 < most < least:
            yield (
                f"{limit.key} allows {in_words(most, limit.unit)}, less than one call: its longest "
                f"reply alone, model.max_tokens = {max_tokens}, may take "
                f"{in_words(least, limit.unit)}; raise the limit to several times that, or lower "
                "model.max_tokens"
            )


@cache
def _shipped_prices() -> dict[str, Price]:
    return _parse(shipped())


def _parse(table: Mapping[str, Mapping[str, Any]]) -> dict[str, Price]:
    return {name: Price.of(price) for name, price in table.items()}


def shipped() -> dict[str, dict[str, Any]]:
    """Return the shipped table, as it is in its file."""
    return tomllib.loads(_SHIPPED.read_text(encoding="utf-8"))


def _names(name: str, model: str) -> bool:
    return model.startswith(name) and _SAME_MODEL.fullmatch(model, len(name)) is not None
