"""Each rule of the strict server refuses exactly the requests that it should."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strict.asked import Asked, by_name
from tests.strict.blocks import ApiError
from tests.strict.cache import PromptCache, prompt_tokens
from tests.strict.conversation import Issued
from tests.strict.replies import Prefix, say
from tests.strict.rules import Terms, check_count, check_create, check_headers, parse_body

VERSION = "2026-10-21"
ISSUED = "(issued)"
SONNET, OPUS, OLD = "claude-sonnet-5-5", "claude-opus-4-5", "claude-haiku-4-5"
NAMES = ("claude", SONNET, OPUS, OLD)
TERMS = Terms(keys=("k",), models=NAMES, context_tokens=20_000, output_tokens=64_000)
HEADERS = {"authorization": "Bearer k", "anthropic-version": VERSION}
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
HOUR: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def text(words: str = "hello", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def thought(words: str = "hm", signature: str = ISSUED) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


def call(tool_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": tool_id, "name": "bash", "input": {}, **more}


def result(tool_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": tool_id, "content": "done", **more}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def tool(name: str = "bash", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "runs", "input_schema": {"type": "object"}, **more}


OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": False}


def strict(name: str = "bash", **more: Any) -> dict[str, Any]:
    return tool(name, strict=True, input_schema=OBJECT | more)


def optional(count: int, kind: Any = None) -> dict[str, Any]:
    return {"properties": {f"p{n}": kind or {"type": "string"} for n in range(count)}}


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    """Return a body; thinking with the signature `ISSUED` is bound to the content before it."""
    made: dict[str, Any] = {
        "model": "claude",
        "max_tokens": 1000,
        "stream": True,
        "system": "You are 'alice', role: tester",
        "tools": [tool()],
        "messages": copy.deepcopy(list(messages)) or [user(text())],
        **more,
    }
    prefix = Prefix(made)
    for message in made["messages"]:
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("signature") == ISSUED:
                block["signature"] = prefix.sign(block["thinking"])
            if block.get("data") == ISSUED:
                block["data"] = prefix.sign_redacted()
            prefix.add(message.get("role", ""), block)
    return made


def refusal(wrong: dict[str, Any], issued: Issued | None = None, version: str = VERSION) -> str:
    """Return the sentence with which a body is refused, or an empty string."""
    try:
        check_create(wrong, version, TERMS, issued or Issued())
    except ApiError as error:
        return error.message
    return ""


def changed_signature() -> str:
    """Return the signature of another text behind the same prefix."""
    sent = body(user(text()), assistant(thought(), text()))
    return str(sent["messages"][1]["content"][0]["signature"])


LOOP = [
    user(text()),
    assistant(thought(), call("a"), call("b")),
    user(result("b"), result("a", is_error=True), text("and there is mail")),
]

GOOD = {
    "a string": body({"role": "user", "content": "hello"}),
    "blocks": body(user(text(), text())),
    "no system, no tools": {
        key: value for key, value in body().items() if key not in {"system", "tools"}
    },
    "a tool loop": body(*LOOP),
    "results in several messages": body(
        *LOOP[:2],
        user(result("a")),
        user(result("b")),
        {"role": "user", "content": "mail"},
    ),
    "users in a row": body(user(text()), user(text()), assistant(text()), user(text())),
    "an empty result": body(*LOOP[:2], user(result("a", content=""), result("b", content=[]))),
    "a result of blocks": body(*LOOP[:2], user(result("a", content=[text()]), result("b"))),
    "a result without content": body(
        *LOOP[:2], user({"type": "tool_result", "tool_use_id": "a"}, result("b"))
    ),
    "four breakpoints": body(
        user(text(**MARK)), assistant(text(**MARK)), user(text(**MARK)), system=[text(**HOUR)]
    ),
    "adaptive thinking": body(thinking={"type": "adaptive", "display": "summarized"}),
    "enabled thinking": body(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000),
    "redacted thinking": body(
        user(text()),
        assistant({"type": "redacted_thinking", "data": ISSUED}, text()),
        user(text()),
    ),
    "a choice of tools": body(tool_choice={"type": "tool", "name": "bash"}),
    "as many strict tools as there may be": body(tools=[strict(f"t{n}") for n in range(20)]),
    "as many optional parameters of strict tools": body(tools=[strict(**optional(24))]),
    "more of tools that are not strict": body(
        tools=[tool(f"t{n}", input_schema=OBJECT | optional(30)) for n in range(30)]
    ),
    "every other key": body(
        metadata={"user_id": "u"},
        stop_sequences=["x"],
        service_tier="auto",
        cache_control=None,
        output_config={"effort": None},
    ),
    "effort": body(model=SONNET, output_config={"effort": "xhigh"}),
    "effort of an older model": body(model=OPUS, output_config={"effort": "high"}),
    "thinking of a new model": body(
        model=SONNET, thinking={"type": "adaptive", "display": "omitted"}
    ),
    "a budget of an older model": body(
        model=OLD, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000
    ),
}


@pytest.mark.parametrize("right", GOOD.values(), ids=GOOD.keys())
def test_a_good_request_passes_and_is_not_changed(right: dict[str, Any]) -> None:
    before = copy.deepcopy(right)
    assert refusal(right) == ""
    assert right == before


def schema(**more: Any) -> dict[str, Any]:
    return body(tools=[tool(input_schema=more)])


BAD = {
    "temperature: Extra inputs": body(temperature=1.0),
    "top_p: Extra inputs": body(top_p=1.0),
    "top_k: Extra inputs": body(top_k=1),
    "seed: Extra inputs": body(seed=1),
    "model: Field required": {k: v for k, v in body().items() if k != "model"},
    "max_tokens: Field required": {k: v for k, v in body().items() if k != "max_tokens"},
    "messages: Field required": {k: v for k, v in body().items() if k != "messages"},
    "model: gpt": body(model="gpt"),
    "max_tokens: Input should be greater": body(max_tokens=0),
    "max_tokens: Input should have": body(max_tokens="many"),
    "max_tokens: 64001 > 64000": body(max_tokens=64_001),
    "Streaming is required": body(stream=False),
    "metadata.name: Extra": body(metadata={"name": "x"}),
    "at least one message": body(messages=[]),
    'first message must use the "user" role': body(assistant(text()), user(text())),
    "role: Input should be": body({"role": "tool", "content": "hello"}),
    "messages.0.id: Extra": body({**user(text()), "id": "x"}),
    "messages.0: Input should be an object": body("hello"),
    "messages.0.content: Field required": body({"role": "user"}),
    "messages: Input should be a valid string": body({"role": "user", "content": 1}),
    "prefill": body(user(text()), assistant(text("The answer is"))),
    "messages.0: all messages must have non-empty": body({"role": "user", "content": ""}),
    "messages.1: all messages must have non-empty": body(user(text()), assistant(), user(text())),
    "messages: text content blocks must be non-empty": body(user(text(""))),
    "messages: text content blocks must contain": body(user(text(" \n\t"))),
    "system: text content blocks must be non-empty": body(system=[text("")]),
    "system: text content blocks must contain": body(system=" "),
    "messages.0.content.0.text.parsed_output: Extra": body(user(text(parsed_output=None))),
    "messages.0.content.0.text.text: Field": body(user({"type": "text"})),
    "messages.0.content.0.text.text: Input": body(user({"type": "text", "text": None})),
    "Input tag 'speech'": body(user({"type": "speech"})),
    "`tool_use` blocks may not stand in `user`": body(user(call())),
    "`tool_result` blocks may not stand in `assistant`": body(user(text()), assistant(result())),
    "`thinking` blocks may not stand in `user`": body(user(thought())),
    "`tool_result` blocks may not stand in `tool_result`": body(
        *LOOP[:2], user(result("a", content=[result()]), result("b"))
    ),
    "without `tool_result` blocks immediately after: b.": body(*LOOP[:2], user(result("a"))),
    "without `tool_result` blocks immediately after: a, b.": body(*LOOP[:2], user(text())),
    "without `tool_result` blocks immediately after: b. ": body(
        *LOOP[:2], user(result("a")), assistant(text()), user(result("b"))
    ),
    "messages.1: `tool_use` ids were found": body(
        *LOOP[:2], user(text("first"), result("a"), result("b"))
    ),
    "unexpected `tool_use_id`": body(*LOOP[:2], user(result("a"), result("b"), result("c"))),
    "messages.0: unexpected `tool_use_id`": body(user(result())),
    "messages.4: unexpected `tool_use_id`": body(*LOOP, assistant(text()), user(result("a"))),
    "multiple `tool_result` blocks": body(*LOOP[:2], user(result("a"), result("b"), result("a"))),
    "`tool_use` ids must be unique": body(
        user(text()), assistant(call()), user(result()), assistant(call()), user(result())
    ),
    "content cannot be empty if `is_error`": body(
        *LOOP[:2], user(result("a", is_error=True, content=""), result("b"))
    ),
    "is_error: Input should be": body(*LOOP[:2], user(result("a", is_error=None), result("b"))),
    "tool_use.input: Input": body(user(text()), assistant(call(input="ls")), user(result())),
    "tool_use.name: String": body(user(text()), assistant(call(name="a b")), user(result())),
    "tool_use.id: String": body(user(text()), assistant(call("a.b")), user(result("a.b"))),
    "tool_use.caller: Input": body(user(text()), assistant(call(caller=None)), user(result())),
    "must define tools": body(*LOOP, tools=[]),
    "tools.0.custom.name: String": body(tools=[tool("mail.send")]),
    "'^[a-zA-Z0-9_-]{1,128}$'": body(tools=[tool("n" * 129)]),
    "Tool names must be unique": body(tools=[tool(), tool()]),
    "tools.0.custom.input_schema.type: ": body(tools=[{"name": "bash"}]),
    "input_schema.type: Input should be 'object'": schema(type="string"),
    "oneOf, allOf, or anyOf": schema(type="object", anyOf=[]),
    "Property keys": schema(type="object", properties={"a b": {}}),
    "required: Input": schema(type="object", required=["a"]),
    "description: Input": body(tools=[tool(description=None)]),
    "tools.0.custom.parameters: Extra": body(tools=[tool(parameters={})]),
    "tools.0: Input": body(tools=["bash"]),
    "custom.strict: Input": body(tools=[tool(strict=1)]),
    "tools.0.custom: For 'object' type, 'additionalProperties'": body(tools=[tool(strict=True)]),
    "'additionalProperties' must be explicitly set to false": body(
        tools=[strict(properties={"a": {"type": "array", "items": {"type": "object"}}})]
    ),
    "properties minLength, x are not supported": body(
        tools=[strict(properties={"a": {"type": "string", "minLength": 1, "x": 1}})]
    ),
    "'minItems' values": body(tools=[strict(properties={"a": {"type": "array", "minItems": 2}})]),
    "Too many strict tools (21)": body(tools=[strict(f"t{n}") for n in range(21)]),
    "Too many optional parameters in strict schemas (25)": body(
        tools=[strict("a", **optional(20)), strict("b", **optional(5))]
    ),
    "Too many parameters with union types in strict schemas (17)": body(
        tools=[
            strict("a", **optional(9, {"type": ["string", "null"]})),
            strict("b", **optional(8, {"anyOf": [{"type": "string"}, {"type": "null"}]})),
        ]
    ),
    "tool_choice.type": body(tool_choice={"type": "required"}),
    "tool_choice: may only": body(tools=[], tool_choice={"type": "auto"}),
    "Tool 'ls' not found": body(tool_choice={"type": "tool", "name": "ls"}),
    "A maximum of 4 blocks with cache_control": body(user(*[text(**MARK)] * 5)),
    "Found 5.": body(
        user(*[text(**MARK)] * 3), tools=[tool(**MARK)], cache_control={"type": "ephemeral"}
    ),
    "must not come after a ttl='5m'": body(user(text(**HOUR)), system=[text(**MARK)]),
    "cache_control.ephemeral.ttl": body(
        user(text(cache_control={"type": "ephemeral", "ttl": "1d"}))
    ),
    "cache_control.type: Input": body(user(text(cache_control={"type": "forever"}))),
    "cache_control.ephemeral.scope: Extra": body(
        user(text(cache_control={"type": "ephemeral", "scope": "global"}))
    ),
    "thinking.cache_control: Extra": body(
        user(text()), assistant({**thought(), **MARK}, text()), user(text())
    ),
    "Invalid `signature` in `thinking`": body(
        user(text()), assistant(thought("changed", changed_signature()), text()), user(text())
    ),
    "messages.1.content.0: Invalid `signature`": body(
        user(text()), assistant(thought(signature="unknown"), text()), user(text())
    ),
    "Invalid `signature` in `redacted_thinking`": body(
        user(text()),
        assistant({"type": "redacted_thinking", "data": "unknown"}, text()),
        user(text()),
    ),
    "The final block in an assistant message": body(
        user(text()), assistant(thought()), user(text())
    ),
    "thinking.type: Input": body(thinking={"type": "always"}),
    "thinking.adaptive.budget_tokens: Extra": body(
        thinking={"type": "adaptive", "budget_tokens": 2000}
    ),
    "budget_tokens: Input": body(thinking={"type": "enabled", "budget_tokens": 100}),
    "must be greater than `thinking": body(thinking={"type": "enabled", "budget_tokens": 1024}),
    "thinking.adaptive.display: Input": body(thinking={"type": "adaptive", "display": "full"}),
    "`thinking.type: disabled` is not": body(model=SONNET, thinking={"type": "disabled"}),
    "`thinking.type: enabled` is not": body(
        model=SONNET, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000
    ),
    "`thinking.type: adaptive` is not": body(model=OLD, thinking={"type": "adaptive"}),
    "tool_choice: forcing": body(model=SONNET, tool_choice={"type": "any"}),
    "output_config.effort: Input": body(model=SONNET, output_config={"effort": "little"}),
    "output_config.task: Extra": body(model=SONNET, output_config={"task": 1}),
    "does not support the effort": body(model=OLD, output_config={"effort": "low"}),
    "does not support the effort parameter": body(output_config={"effort": "low"}),
    "'max' is not supported": body(model=OPUS, output_config={"effort": "max"}),
    "prompt is too long: 200": body(user(text("word" * 20_000))),
}


@pytest.mark.parametrize(("sentence", "wrong"), BAD.items(), ids=BAD.keys())
def test_each_rule_refuses_with_its_own_sentence(sentence: str, wrong: dict[str, Any]) -> None:
    assert sentence in refusal(wrong)


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ApiError) as caught:
        check_create(body(model="gpt"), VERSION, TERMS, Issued())
    error = caught.value
    assert (error.status, error.type, error.message) == (404, "not_found_error", "model: gpt")


def test_the_older_version_still_accepts_sampling_parameters() -> None:
    assert refusal(body(temperature=1.0), version="2023-06-01") == ""
    said = refusal(body(model=SONNET, temperature=1.0), version="2023-06-01")
    assert said == "`temperature` is deprecated for this model."


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer other"}, 401),
        ({"authorization": "k"}, 401),
        ({"x-api-key": "k"}, 401),
        ({"authorization": "Bearer k"}, 400),
        ({**HEADERS, "anthropic-version": "2020-01-01"}, 400),
    ],
)
def test_headers_need_a_known_key_and_version(headers: dict[str, str], status: int) -> None:
    with pytest.raises(ApiError) as caught:
        check_headers(headers, TERMS)
    assert caught.value.status == status


def test_good_headers_pass() -> None:
    check_headers(HEADERS, TERMS)


@pytest.mark.parametrize(
    ("kind", "data", "status"),
    [
        ("text/plain", b"{}", 400),
        ("application/json", b"{", 400),
        ("application/json", b"[]", 400),
        ("application/json", b"\xff", 400),
        ("application/json", json.dumps({"text": "half a pair: \ud800"}).encode(), 400),
        ("application/json", b" " * (32 * 1024 * 1024 + 1), 413),
    ],
)
def test_a_body_is_a_json_object_of_no_more_than_32_mb(kind: str, data: bytes, status: int) -> None:
    with pytest.raises(ApiError) as caught:
        parse_body(kind, data)
    assert caught.value.status == status


def test_counting_requires_no_max_tokens_and_no_stream() -> None:
    counted = {key: value for key, value in body().items() if key not in {"max_tokens", "stream"}}
    check_count(counted, TERMS, Issued())
    with pytest.raises(ApiError, match="max_tokens: Extra inputs"):
        check_count(body(), TERMS, Issued())


def test_a_paused_turn_may_be_sent_back_as_the_last_message() -> None:
    issued = Issued()
    message = say("so far", stop_reason="pause_turn").message(model="claude", usage={})
    paused = body(user(text()), assistant(*message["content"]))
    assert "prefill" in refusal(paused, issued)
    issued.remember(message)
    assert refusal(paused, issued) == ""


def test_thinking_of_a_tool_loop_is_kept_whole_or_removed_whole() -> None:
    issued = Issued()
    answer = say(calls=[("bash", {})], thinking="hm", redacted=True)
    message = answer.message(model="claude", usage={}, body=body(user(text())))
    issued.remember(message)
    first, second, asked = message["content"]
    behind = user(result(asked["id"]))
    assert refusal(body(user(text()), assistant(first, second, asked), behind), issued) == ""
    halved = refusal(body(user(text()), assistant(first, asked), behind), issued)
    assert "cannot be modified" in halved
    assert refusal(body(user(text()), assistant(asked), behind), issued) == ""


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "the system prompt": lambda sent: sent.update(system="You are 'bob'"),
    "a tool": lambda sent: sent["tools"].append(tool("other")),
    "an earlier message": lambda sent: sent["messages"][0]["content"].append(text("more")),
    "earlier thinking": lambda sent: sent["messages"][1]["content"].pop(0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_thinking_is_bound_to_all_content_before_it(
    change: Callable[[dict[str, Any]], object],
) -> None:
    first, second = assistant(thought("a"), text()), assistant(thought("b"), text())
    sent = body(user(text()), first, user(text()), second, user(text()))
    assert refusal(sent) == ""
    change(sent)
    assert "bound to a different conversation" in refusal(sent)


def test_a_breakpoint_of_the_cache_does_not_change_the_content_before_thinking() -> None:
    sent = body(user(text()), assistant(thought(), text()), user(text()))
    sent["messages"][0]["content"][0] |= MARK
    assert refusal(sent) == ""


@given(
    calls=st.lists(st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True), unique=True, max_size=6),
    data=st.data(),
)
def test_results_pass_exactly_when_they_answer_every_call_once(
    calls: list[str], data: st.DataObject
) -> None:
    answered = data.draw(st.lists(st.sampled_from([*calls, "stranger"]), max_size=8))
    said = [
        user(text()),
        assistant(text(), *map(call, calls)),
        user(*map(result, answered), text()),
    ]
    good = sorted(answered) == sorted(calls) and "stranger" not in set(answered) - set(calls)
    assert (refusal(body(*said)) == "") is good


@given(st.text())
def test_a_text_passes_exactly_when_it_is_not_blank(words: str) -> None:
    assert (refusal(body(user(text(words)))) == "") is bool(words.strip())


def account(cache: PromptCache, *bodies: dict[str, Any]) -> list[tuple[int, int, int]]:
    keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    usages = [cache.account(one) for one in bodies]
    for one, usage in zip(bodies, usages, strict=True):
        assert sum(usage[key] for key in keys) == prompt_tokens(one)
    return [(usage[keys[0]], usage[keys[1]], usage[keys[2]]) for usage in usages]


def growing(*marks: int, system: str = "You are 'alice'") -> dict[str, Any]:
    said = [text(f"message {n}", **(MARK if n in marks else {})) for n in range(max(marks) + 1)]
    return body(user(*said), system=[text(system, **MARK)])


def test_a_growing_conversation_reads_the_cache_entry_of_the_previous_turn() -> None:
    first, second = account(PromptCache(), growing(1), growing(3))
    assert first[0] == 0
    assert first[2] == 0
    assert second[2] == first[1]
    assert second[1] > 0


def test_after_a_change_of_the_system_prompt_nothing_is_read_from_the_cache() -> None:
    _, second = account(PromptCache(), growing(1), growing(1, system="It is 10:31"))
    assert second[2] == 0


def test_an_entry_more_than_20_blocks_before_the_breakpoint_is_not_found() -> None:
    cache = PromptCache()
    first, near, far = account(cache, growing(1), growing(21), growing(42))
    system_alone = prompt_tokens(body(system=growing(1)["system"], messages=[]))
    assert near[2] == first[1]
    assert far[2] == system_alone


def test_a_write_is_billed_and_expires_by_its_time_to_live() -> None:
    """Up to the last one-hour breakpoint the write is for an hour, behind it for five minutes."""
    now = [0.0]
    cache = PromptCache(now=lambda: now[0])
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    said = [text("the older part", **hour), text("the tail", **MARK)]
    asked = body(user(*said), system=[text("You are 'alice'", **hour)])
    split = cache.account(asked)["cache_creation"]
    whole = prompt_tokens(asked)
    tail = split["ephemeral_5m_input_tokens"]
    assert 0 < tail < split["ephemeral_1h_input_tokens"] == whole - tail
    now[0] = 299.0
    assert cache.account(asked)["cache_read_input_tokens"] == whole
    now[0] = 299.0 + 300.0  # a read renews an entry for its lifetime, which is over now
    late = cache.account(asked)
    assert late["cache_read_input_tokens"] == whole - tail
    assert late["cache_creation"] == {
        "ephemeral_5m_input_tokens": tail, "ephemeral_1h_input_tokens": 0,
    }  # fmt: skip
    now[0] += 3600.0
    assert cache.account(asked)["cache_read_input_tokens"] == 0


def test_without_a_breakpoint_nothing_is_cached() -> None:
    plain = body()
    assert account(PromptCache(), plain, plain) == [(prompt_tokens(plain), 0, 0)] * 2


def test_a_request_is_parsed_as_the_model_would_see_it() -> None:
    asked = Asked(body(*LOOP))
    assert (asked.name, asked.role, asked.tools) == ("alice", "tester", ["bash"])
    assert asked.last_text == "and there is mail"
    assert [(one.name, one.text, one.is_error) for one in asked.last_results] == [
        ("bash", "done", False),
        ("bash", "done", True),
    ]


def test_each_name_plays_its_own_turns_and_then_has_nothing_to_do() -> None:
    echo: Callable[[Asked], Any] = lambda asked: say(asked.last_text)  # noqa: E731  # one turn
    answer = by_name({"alice": [say("one"), echo]})
    alice, stranger = Asked(body()), Asked(body(system="nobody"))
    said = [answer(one).text for one in (alice, stranger, alice, alice)]
    assert said == ["one", "Nothing to do.", "hello", "Nothing to do."]
