"""The cost of tokens, and the models with a known price."""

from __future__ import annotations

from decimal import Decimal
from pkgutil import resolve_name
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.budget.accounts import Terms
from teamd.budget.prices import FREE, Price, Prices, find_small_limits, shipped
from teamd.model_server import Usage
from teamd.settings import Settings

TOKENS = st.integers(0, 400_000)
RATES = st.floats(0, 100).map(lambda rate: round(rate, 4))
MILLION = 1_000_000


def cost(model: str, **tokens: int) -> Decimal:
    price = Prices({}).find(model)
    assert price is not None
    return price.cost(Usage(**tokens))


def test_the_default_model_has_a_price() -> None:
    """A limit on money in an otherwise empty team.toml must not pause every teammate."""
    assert Prices({}).find(Settings().model.name) is not None


def test_each_model_in_the_sdk_has_a_price() -> None:
    """This fails when an SDK update adds a model, until its price is recorded."""
    literal, _ = get_args(resolve_name("anthropic.types.model:Model"))
    named = set(get_args(literal))
    assert len(named) > 10
    assert {model for model in named if Prices({}).find(model) is None} == set()


def test_each_kind_of_token_has_its_own_price() -> None:
    """The figures of the source that `prices.toml` names."""
    assert cost("claude-haiku-4-5", input_tokens=MILLION) == 1
    assert cost("claude-haiku-4-5", cache_read_tokens=MILLION) == Decimal("0.1")
    assert cost("claude-haiku-4-5", cache_write_tokens=MILLION) == Decimal("1.25")
    hour = {"cache_write_tokens": MILLION, "cache_hour_tokens": MILLION}
    assert cost("claude-haiku-4-5", **hour) == 2
    assert cost("claude-haiku-4-5", output_tokens=MILLION) == 5
    assert cost("claude-sonnet-5-5", cache_read_tokens=MILLION) == Decimal("0.1")


def test_a_long_prompt_has_a_higher_price_for_all_of_its_tokens() -> None:
    short = cost("claude-haiku-5-5", input_tokens=60_000, cache_read_tokens=40_000, output_tokens=9)
    long = cost("claude-haiku-5-5", input_tokens=60_001, cache_read_tokens=40_000, output_tokens=9)
    assert long - 5 * short == Decimal("0.0000005")


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("claude-haiku-4-5-latest", "claude-haiku-4-5"),
        ("claude-opus-5", "claude-opus-5"),
    ],
)
def test_a_dated_name_is_the_same_model(model: str, known: str) -> None:
    assert Prices({}).find(model) == Price.of(shipped()[known])


@pytest.mark.parametrize(
    "model", ["claude-opus-5-6", "claude-opus-5-5-mini", "claude-opus", "gpt", "", "xclaude-opus-5"]
)
def test_a_name_that_is_only_similar_has_no_price(model: str) -> None:
    """A later model may cost five times as much, so no price is better than another model's."""
    assert Prices({}).find(model) is None


def test_a_persons_own_price_comes_first() -> None:
    prices = Prices({"claude-opus-5": {"input": 1.0, "output": 2.0, "cache_read": None}})
    own = prices.find("claude-opus-5-20260724")
    assert own == Price.of({"input": 1, "output": 2})
    assert prices.find("claude-opus-5-5") == Price.of(shipped()["claude-opus-5-5"])


@given(
    st.fixed_dictionaries(
        {"input": RATES, "output": RATES},
        optional={
            "cache_read": RATES, "cache_write": RATES, "cache_write_hour": RATES,
            "long_prompt_tokens": st.just(100_000), "long_prompt_factor": st.just(5),
        },
    ),
    st.tuples(TOKENS, TOKENS, TOKENS, TOKENS, TOKENS), st.tuples(TOKENS, TOKENS),
)  # fmt: skip
def test_no_reply_costs_more_than_its_reservation(
    rates: dict[str, float], tokens: tuple[int, int, int, int, int], spare: tuple[int, int]
) -> None:
    """For any use of the cache, and any use below the bound."""
    price = Price.of(rates)
    plain, found, kept, hour, out = tokens
    usage = Usage(
        input_tokens=plain, cache_read_tokens=found, cache_write_tokens=kept, output_tokens=out,
        cache_hour_tokens=min(hour, kept),
    )  # fmt: skip
    most = price.most(usage.total_input_tokens + spare[0], out + spare[1])
    assert float(price.cost(usage)) <= float(most)


def test_a_free_model_costs_nothing() -> None:
    assert FREE.most(MILLION, MILLION) == 0


@pytest.mark.parametrize(
    ("terms", "models", "named"),
    [
        ({"team_usd": Decimal("0.01")}, ["claude-opus-5-5"], ["limits.team_usd"]),
        ({"team_usd": Decimal("0.01")}, ["claude-opus-5-5", "unknown"], []),
        ({"team_usd": Decimal(9)}, ["claude-opus-5-5"], []),
        ({"team_tokens_per_day": 15_999}, ["unknown"], ["limits.team_tokens_per_day"]),
        ({"team_tokens_per_day": 16_000, "team_usd_per_day": Decimal(0)}, ["unknown"], []),
    ],
)
def test_a_limit_below_the_cost_of_one_call_is_named(
    terms: dict[str, Any], models: list[str], named: list[str]
) -> None:
    found = [*find_small_limits(Terms(**terms), models, 16_000)]
    assert [one.partition(" ")[0] for one in found] == named


def test_the_sentence_about_a_limit_below_the_cost_of_one_call_has_the_figures() -> None:
    """Of two models the cheaper one counts."""
    own = {"dear": {"input": 1, "output": 100}, "cheap": {"input": 1, "output": 10}}
    terms = Terms(team_usd_per_day=Decimal("0.05"), prices=own)
    (found,) = find_small_limits(terms, ["dear", "cheap"], 16_000)
    assert found == (
        "limits.team_usd_per_day allows $0.05, less than one call: its longest reply alone, "
        "model.max_tokens = 16000, may take $0.16; raise the limit to several times that, or "
        "lower model.max_tokens"
    )
