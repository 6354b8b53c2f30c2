"""Requests as JSON: the cached encoding of a list of tools equals a fresh one."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.model_server.facts import ModelFacts
from teamd.models import Ask, Block
from teamd.models.encoding import digest_of, encode, encode_body, encode_tools, marked

_NAMES = st.text(st.characters(codec="utf-8"), max_size=9)
_TOOLS = st.lists(st.fixed_dictionaries({"name": _NAMES, "description": _NAMES}), max_size=3)


@given(st.lists(_TOOLS, max_size=9), st.lists(_NAMES, min_size=1, max_size=3))
def test_a_list_of_tools_is_never_mistaken_for_another(
    lists: list[list[Block]], parts: list[str]
) -> None:
    """Conversations of a process alternate, and a new list may reuse the address of a freed one."""
    for tools in (*lists, *lists, *map(list, lists)):
        assert json.loads(encode_tools(tools)) == tools
        assert json.loads(encode_tools(tools, mark=True)) == [
            *tools[:-1], *map(marked, tools[-1:]),
        ]  # fmt: skip
        for some in (parts, parts[:1]):
            head = encode(some).removesuffix(b"]")
            whole = b"%s,%s]" % (head, encode(tools))
            assert digest_of(*some, tools=tools) == hashlib.sha256(whole).hexdigest()


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
    body = json.loads(encode_body(ask, [], mark=False))
    plain = {"model", "max_tokens", "stream", "system", "tools", "messages"}
    assert {key: value for key, value in body.items() if key not in plain} == options
