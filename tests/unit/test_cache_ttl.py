"""Savings and costs of the prompt cache's two lifetimes, billed by the strict server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from teamd.budget.prices import Prices
from teamd.model_server import Usage
from teamd.models import Ask
from teamd.models.encoding import encode_body
from tests.strict.cache import PromptCache, check_breakpoints, prompt_tokens

MODEL = "claude-sonnet-5-5"
TOOLS = [{"name": "bash", "description": "Runs. " * 300, "input_schema": {"type": "object"}}]
BUSY_SECONDS = 20.0
IDLE_SECONDS = 600.0


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


@dataclass
class Talk:
    """A conversation with a server that keeps a prompt cache.

    Attributes:
        hour: whether its older part is cached for an hour.
        step_tokens: about how many tokens each call adds.
        first_tokens: about how many tokens the first message has.
    """

    hour: bool
    step_tokens: int = 1000
    first_tokens: int = 1
    now: float = 0.0
    messages: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = PromptCache(now=lambda: self.now)
        self.messages.append({"role": "user", "content": text("x " * (2 * self.first_tokens))})

    def call(self, seconds: float = BUSY_SECONDS) -> Decimal:
        """Make a call after some seconds and return the cost of its input in USD."""
        self.now += seconds
        ask = Ask(
            model=MODEL, max_tokens=1000, system="You are alice.", tools=TOOLS,
            messages=self.messages,
        )  # fmt: skip
        body = json.loads(encode_body(ask, cache=True, hour=self.hour))
        check_breakpoints(body)
        self.tokens = prompt_tokens(body)
        self.told = told = self.cache.account(body)
        words = "x " * (2 * self.step_tokens)
        self.messages += [
            {"role": "assistant", "content": text("I read on.")},
            {"role": "user", "content": text(words)},
        ]
        price = Prices({}).find(MODEL)
        assert price is not None
        return price.cost(
            Usage(
                input_tokens=told["input_tokens"],
                cache_read_tokens=told["cache_read_input_tokens"],
                cache_write_tokens=told["cache_creation_input_tokens"],
                cache_hour_tokens=told["cache_creation"]["ephemeral_1h_input_tokens"],
            )
        )

    def wake(self) -> Decimal:
        """Return the input cost of a call that mail causes after ten idle minutes."""
        self.messages[-1] = {"role": "user", "content": text("Bob writes that it works now.")}
        return self.call(IDLE_SECONDS)


@pytest.mark.parametrize("calls", range(8, 12))
def test_a_wake_after_ten_idle_minutes_costs_a_tenth(calls: int) -> None:
    """At 100,000 tokens, at any position of the conversation between two one-hour breakpoints."""
    cost = {}
    for hour in (False, True):
        talk = Talk(hour, first_tokens=101_000 - 1000 * calls)
        for _ in range(calls):
            talk.call()
        cost[hour] = talk.wake()
    assert 100_000 < talk.tokens < 102_000
    assert cost[False] > Decimal("0.25")
    assert cost[True] <= cost[False] / 10


@pytest.mark.parametrize("first_tokens", [1, 30_000])
@pytest.mark.parametrize("step_tokens", [200, 3000])
def test_thirty_busy_calls_cost_at_most_a_tenth_more(step_tokens: int, first_tokens: int) -> None:
    cost = {}
    for hour in (False, True):
        talk = Talk(hour, step_tokens, first_tokens)
        talk.call()  # writes the whole conversation in any case
        cost[hour] = sum((talk.call() for _ in range(30)), Decimal(0))
    assert cost[False] < cost[True] <= cost[False] * Decimal("1.1")


@pytest.mark.parametrize("calls", range(4, 9))
def test_a_one_hour_breakpoint_is_found_behind_many_results(calls: int) -> None:
    """The server looks back only 20 blocks, so the last known breakpoint is set again."""
    talk = Talk(hour=True)
    for _ in range(calls):
        talk.call()
        talk.messages[-1]["content"] *= 9
    talk.wake()
    assert talk.told["cache_read_input_tokens"] > 3000
