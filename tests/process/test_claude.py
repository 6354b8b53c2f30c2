"""The requests of `Claude` to the Messages API, and its reading of the answers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from teamd.agent.conversation.conversation import Conversation
from teamd.masking import MASK, Mask
from teamd.messages import Message
from teamd.models import Ask, Reply
from teamd.tools import Result
from teamd.transcript.file import Transcript
from teamd.transcript.records import Opened
from tests.strict.cache import BREAKPOINTS, reckon
from tests.strict.faults import Status
from tests.strict.replies import Answer, decline, say, tool_calls, use
from tests.strict.server import StrictServer, by_name

if TYPE_CHECKING:  # loading the SDK takes longer than importing all test files
    from teamd.models.claude import Claude

MODEL = "claude-sonnet-5-5"
SYSTEM = "You are 'alice', role: tester."
TOOLS = [
    {"name": name, "description": name, "input_schema": {"type": "object"}}
    for name in ("bash", "read_file")
]
LS = ("bash", {"command": "ls", "timeout": None, "tags": [None, 1.5, {"ü": "\n"}]})


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use only the test's key, without the environment and profiles of the person who runs it."""
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CREDENTIALS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def claude(url: str | None, **more: Any) -> Claude:
    given = {"key_command": None, "headers": {}, "timeout_seconds": 30.0, "cache": True, **more}
    # The SDK takes longer to import than all test files together, so it is loaded in the test.
    made: Claude = resolve_name("teamd.models.claude:Claude")(base_url=url, **given)
    return made


def user(text: str = "hello") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def ask_of(*messages: dict[str, Any], **more: Any) -> Ask:
    given = {"model": MODEL, "system": SYSTEM, "tools": TOOLS, "max_tokens": 1000, **more}
    return Ask(messages=list(messages) or [user()], **given)


def ask(url: str | None, given: Ask | None = None, **more: Any) -> Reply:
    async def once() -> Reply:
        model = claude(url, **more)
        try:
            return await model.reply(given or ask_of())
        finally:
            await model.close()

    return asyncio.run(once())


def test_the_model_s_own_reply_is_accepted_back_block_by_block() -> None:
    """The SDK adds keys of its own, and the service refuses a body with unknown keys."""
    said = say("I look.", thinking="Hm", redacted=True, calls=[LS, ("read_file", {})])
    with StrictServer(by_name({"alice": [said, say("Done.")]})) as server:
        reply = ask(server.url)
        assert [block["type"] for block in reply.content] == [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
            "tool_use",
        ]
        first, second = tool_calls(reply.content)
        assert (first["name"], first["input"]) == LS
        assert (second["name"], second["input"]) == ("read_file", {})
        answers = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": "x"}
            for call in tool_calls(reply.content)
        ]
        given = ask_of(
            user(),
            {"role": "assistant", "content": json.loads(json.dumps(reply.content))},
            {"role": "user", "content": answers},
        )
        assert ask(server.url, given).text == "Done."
        assert server.refused == []
        assert server.requests[1].body["messages"][1]["content"] == reply.content


class Noted(Answer):
    """An answer with keys without a value, as the service sometimes sends them."""

    def content(self, body: Mapping[str, Any] = MappingProxyType({})) -> list[dict[str, Any]]:
        return [{**block, "citations": None} for block in super().content(body)]


def test_keys_without_a_value_are_left_out() -> None:
    """Servers that imitate the API refuse such keys, which also make a transcript longer."""
    with StrictServer(by_name({"alice": [Noted(text="Here.")]})) as server:
        assert ask(server.url).content == [{"text": "Here.", "type": "text"}]


@pytest.mark.parametrize("thinking", ["", "Hm"])
def test_thinking_is_sent_back_unchanged_from_the_transcript(tmp_path: Path, thinking: str) -> None:
    """A changed block is refused, in this process and in the next one."""
    path = tmp_path / "alice.jsonl"
    plays = [use(LS, thinking=thinking), use(LS, thinking=thinking), say("Done.")]
    with StrictServer(by_name({"alice": plays})) as server:
        talk = Conversation(Transcript(path))
        talk.open(Opened(system=SYSTEM))
        talk.deliver([Message(sender="lead", to="alice", content="work")])
        while talk.owes_reply:
            talk.add_reply(ask(server.url, ask_of(*talk.context.messages())))
            for call in talk.unanswered:
                talk.add_result(call, Result(text="x"))
            talk = Conversation(Transcript(path))
        assert len(server.requests) == 3
        assert server.refused == []


def test_a_growing_conversation_is_read_from_the_cache() -> None:
    """Without the cache, each turn would pay for the whole conversation, ten times too much."""
    turns = 12
    with StrictServer(by_name({"alice": [use(LS, LS)] * turns})) as server:
        messages = [user("work " * 50)]
        replies = []
        for _ in range(turns):
            reply = ask(server.url, ask_of(*messages))
            replies.append(reply)
            results = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": "x" * 100}
                for call in tool_calls(reply.content)
            ]
            messages += [
                {"role": "assistant", "content": reply.content},
                {"role": "user", "content": results},
            ]
        bodies = [request.body for request in server.requests]
    assert all(json.dumps(body).count("cache_control") <= BREAKPOINTS for body in bodies)
    fixed = {json.dumps([body["tools"], body["system"]]) for body in bodies}
    assert len(fixed) == 1, "tools and system prompt stay byte-identical"
    for before, after in pairwise(replies):
        assert after.usage.cache_read_tokens == before.usage.total_input_tokens
        assert after.usage.input_tokens == 0


def test_a_reply_with_many_calls_is_still_found_in_the_cache() -> None:
    """The service looks back only 20 blocks; 15 calls and their results are 30."""
    with StrictServer(by_name({"alice": [use(*[LS] * 15), say("Done.")]})) as server:
        first = ask(server.url)
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": "x"}
            for call in tool_calls(first.content)
        ]
        said = {"role": "assistant", "content": first.content}
        second = ask(server.url, ask_of(user(), said, {"role": "user", "content": results}))
    assert second.usage.cache_read_tokens == first.usage.total_input_tokens


TTL_REFUSED = "messages.6.content.0.text.cache_control.ttl: Extra inputs are not permitted"


def test_a_server_that_refuses_a_time_to_live_is_asked_without_it() -> None:
    """Tokens cached for an hour are booked as such, and only one request is refused."""
    said = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}
    given = ask_of(*[user(), said] * 4, user())

    async def three_times(url: str) -> list[Reply]:
        model = claude(url, cache_ttl="1h")
        replies = [await model.reply(given)]
        server.faults.push(Status(400, message=TTL_REFUSED))
        replies += [await model.reply(given), await model.reply(given)]
        await model.close()
        return replies

    with StrictServer(by_name({})) as server:
        first, *_ = asyncio.run(three_times(server.url))
        sent = ['"ttl"' in json.dumps(request.body) for request in server.requests]
    assert sent == [True, True, False, False]
    assert 0 < first.usage.cache_hour_tokens < first.usage.cache_write_tokens


def test_other_servers_receive_no_time_to_live() -> None:
    given = ask_of(*[user(), {"role": "assistant", "content": user("Yes.")["content"]}] * 4, user())
    with StrictServer(by_name({})) as server:
        ask(server.url, given)
        assert '"ttl"' not in json.dumps(server.requests[0].body)

    async def keeps_hour(url: str | None, ttl: str) -> bool:
        model = claude(url, cache_ttl=ttl)
        kept = model._keeps_hour(await model._connect())
        await model.close()
        return kept

    assert asyncio.run(keeps_hour(None, "auto"))
    assert not asyncio.run(keeps_hour(None, "5m"))


def test_teammates_share_the_tools_in_the_cache() -> None:
    """Their system prompts differ, but are placed after the tools."""
    with StrictServer(by_name({})) as server:
        first = ask(server.url)
        other = ask(server.url, ask_of(system="You are 'bob', role: clerk."))
    assert first.usage.cache_read_tokens == 0
    assert other.usage.cache_read_tokens == sum(map(reckon, TOOLS))


def test_without_caching_the_body_has_only_the_plain_keys() -> None:
    """Some servers that imitate the API refuse unknown keys."""
    with StrictServer(by_name({})) as server:
        ask(server.url, cache=False)
        body = server.requests[0].body
    assert "cache_control" not in json.dumps(body)
    assert set(body) == {"model", "max_tokens", "system", "tools", "messages", "stream"}


def test_configured_headers_are_sent_with_each_request() -> None:
    with StrictServer(by_name({})) as server:
        ask(server.url, headers={"X-Project": "a"})
        headers = server.requests[0].headers
    assert headers["x-project"] == "a"
    assert headers["authorization"] == "Bearer test-key"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ('{"command": "rm -rf /tmp/x', "max_tokens"),
        ('{"comm', "max_tokens"),
        ("", "max_tokens"),
        ('{"command": "x\\u00', "model_context_window_exceeded"),
    ],
)
def test_a_truncated_call_is_not_a_failure_and_keeps_its_stop_reason(
    given: str, reason: str
) -> None:
    with StrictServer(by_name({"alice": [use(("bash", given), stop_reason=reason)]})) as server:
        reply = ask(server.url)
    assert reply.stop_reason == reason
    assert isinstance(tool_calls(reply.content)[0]["input"], dict)


def test_a_refusal_is_a_reply() -> None:
    with StrictServer(by_name({"alice": [decline("I can")]})) as server:
        reply = ask(server.url)
    assert (reply.stop_reason, reply.text) == ("refusal", "I can")


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_base_url_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, slash: str
) -> None:
    with StrictServer(by_name({"alice": [say("Here.")]})) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url + slash)
        assert ask(None).text == "Here."


def test_a_missing_key_is_detected_without_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finds_key = resolve_name("teamd.models.claude:Claude.finds_key")
    assert finds_key()
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert not finds_key()


@pytest.mark.parametrize(
    ("given", "variables"),
    [
        ({}, {"ANTHROPIC_API_KEY": "key-of-environment"}),
        ({}, {"ANTHROPIC_AUTH_TOKEN": "key-of-environment"}),
        ({"key_command": "echo key-of-environment"}, {}),
    ],
)
def test_each_key_is_masked_once_it_was_sent(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], variables: dict[str, str]
) -> None:
    """The source of the key does not matter: a profile's token is unknown before the request."""
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    mask = Mask()
    with StrictServer(by_name({"alice": [say("Hi.")]}), keys=("key-of-environment",)) as server:
        ask(server.url, mask=mask, **given)
    assert mask.text("key-of-environment") == MASK


def test_the_key_of_a_command_is_masked_before_the_first_request() -> None:
    """A failing command is reported by the request."""
    mask = Mask()
    asyncio.run(claude(None, key_command="echo key-of-command", mask=mask).learn_key())
    assert mask.text("key-of-command") == MASK
    asyncio.run(claude(None, key_command="false").learn_key())
