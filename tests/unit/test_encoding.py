"""Requests as JSON: their options, and the marks for the cache."""

from __future__ import annotations

import json

import pytest

from teamd.model_server.facts import ModelFacts
from teamd.models import Ask
from teamd.models.encoding import encode_body, marked


@pytest.mark.parametrize(
    ("facts", "effort", "options"),
    [
        (ModelFacts(), "medium", {}),
        (ModelFacts(efforts=frozenset({"low"})), "medium", {}),
        (ModelFacts(efforts=frozenset({"low"})), "", {}),
        (ModelFacts(efforts=frozenset({"low"})), "low", {"output_config": {"effort": "low"}}),
        (
            ModelFacts(adaptive_thinking=True),
            "low",
            {"thinking": {"type": "adaptive", "display": "summarized"}},
        ),
    ],
)
def test_a_request_uses_only_options_that_the_model_is_known_to_accept(
    facts: ModelFacts, effort: str, options: dict[str, object]
) -> None:
    ask = Ask(
        model="m", system="s", tools=[], messages=[], max_tokens=1, facts=facts, effort=effort
    )
    body = json.loads(encode_body(ask, cache=False))
    plain = {"model", "max_tokens", "stream", "system", "tools", "messages"}
    assert {key: value for key, value in body.items() if key not in plain} == options


def test_a_cached_request_marks_tools_and_system_prompt_and_changes_nothing_else() -> None:
    """The conversation is kept, and the next request marks other places."""
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("one", "two")]
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    ask = Ask(model="m", system="s", tools=tools, messages=messages, max_tokens=1)
    plain = json.loads(encode_body(ask, cache=False))
    assert plain == {
        "model": "m", "max_tokens": 1, "stream": True, "tools": tools, "messages": messages,
        "system": [{"type": "text", "text": "s"}],
    }  # fmt: skip
    assert json.loads(encode_body(ask, cache=True)) == {
        **plain, "tools": [tools[0], marked(tools[1])],
        "system": [marked(plain["system"][0])],
        "messages": [{"role": "user", "content": [marked(plain["messages"][0]["content"][0])]}],
    }  # fmt: skip
    assert "cache_control" not in json.dumps([ask.tools, ask.messages])
