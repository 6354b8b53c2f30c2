"""The strict server as the real SDK sees it: answers, refusals and every fault."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

from tests.strict.asked import Model
from tests.strict.faults import Cut, ErrorEvent, Malformed, Reset
from tests.strict.replies import Answer, say, use
from tests.strict.server import Asked, StrictServer, by_name

if TYPE_CHECKING:  # loading the SDK takes longer than importing all test files
    import anthropic

MODEL = "claude-sonnet-5-5"
SYSTEM = "You are 'alice', role: tester. You test."
TOOL = {"name": "bash", "description": "runs", "input_schema": {"type": "object"}}
HELLO: Any = {"role": "user", "content": "hello"}


def sdk(name: str = "anthropic") -> Any:
    """Load the SDK or a part of it inside a test: it takes longer than importing all test files."""
    return resolve_name(name)


@asynccontextmanager
async def client(server: StrictServer, **more: Any) -> AsyncIterator[anthropic.AsyncAnthropic]:
    key = server.environment["ANTHROPIC_API_KEY"]
    given = {"api_key": key, "base_url": server.url, "max_retries": 0, **more}
    async with sdk().AsyncAnthropic(**given) as made:
        yield made


async def ask(
    server: StrictServer,
    messages: list[Any] | None = None,
    *,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Ask once through a new client and return the final message."""
    body: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 1000,
        "system": SYSTEM,
        "tools": [TOOL],
        "messages": messages or [HELLO],
        **more,
    }
    async with client(server, **(options or {})) as made, made.messages.stream(**body) as stream:
        return await stream.get_final_message()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


def always(answer: Answer) -> Callable[[Asked], Answer]:
    return lambda _: answer


def texts(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_text_arrives_with_its_usage() -> None:
    with StrictServer(always(say("Grüße, 世界 🌍"))) as server:
        message = run(ask(server))
    assert texts(message) == "Grüße, 世界 🌍"
    assert message.stop_reason == "end_turn"
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 1
    assert server.requests[0].asked.name == "alice"
    assert server.requests[0].headers["authorization"] == "Bearer test-key"
    assert server.refused == []


def test_the_environment_alone_connects_a_client_to_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with StrictServer(always(say("hello"))) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)

        async def count() -> int:
            async with sdk().AsyncAnthropic(max_retries=0) as made:
                counted = await made.messages.count_tokens(model=MODEL, messages=[HELLO])
                return int(counted.input_tokens)

        assert run(count()) > 0


def test_tool_calls_and_results_round_trip_with_unchanged_thinking() -> None:
    play: list[Answer | Model] = [
        say(
            "I look.",
            thinking="What is there? 🤔",
            redacted=True,
            calls=[("bash", {"command": "ls"}), ("bash", {})],
        ),
        lambda asked: say(" ".join(result.text for result in asked.last_results)),
    ]
    with StrictServer(by_name({"alice": play})) as server:
        first = run(ask(server))
        assert [block.type for block in first.content] == [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
            "tool_use",
        ]
        assert first.stop_reason == "tool_use"
        calls = [block for block in first.content if block.type == "tool_use"]
        assert [call.input for call in calls] == [{"command": "ls"}, {}]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": f"done {at}"}
            for at, call in enumerate(calls)
        ]
        said = [HELLO, {"role": "assistant", "content": first.content}]
        second = run(ask(server, [*said, {"role": "user", "content": results}]))
        assert texts(second) == "done 0 done 1"
        assert server.refused == []


def test_changed_thinking_is_refused() -> None:
    with StrictServer(always(use(("bash", {}), thinking="hm"))) as server:
        first = run(ask(server)).to_dict()["content"]
        first[0]["thinking"] = "changed"
        result = {"type": "tool_result", "tool_use_id": first[1]["id"], "content": "done"}
        said = [{"role": "assistant", "content": first}, {"role": "user", "content": [result]}]
        with pytest.raises(sdk().BadRequestError, match="Invalid `signature`") as caught:
            run(ask(server, [HELLO, *said]))
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id
    assert server.refused[0].body["messages"][1]["content"] == first


def test_refusals_raise_the_errors_of_the_sdk() -> None:
    with StrictServer(always(say("hello")), context_tokens=1000) as server:
        with pytest.raises(sdk().AuthenticationError):
            run(ask(server, options={"api_key": "wrong"}))
        with pytest.raises(sdk().NotFoundError, match="model: gpt"):
            run(ask(server, model="gpt"))
        with pytest.raises(sdk().BadRequestError, match=r"prompt is too long: \d+ tokens > 1"):
            run(ask(server, [{"role": "user", "content": "x" * 9000}]))
        with pytest.raises(sdk().ContentTooLargeError):
            run(ask(server, [{"role": "user", "content": "x" * 33_600_000}]))
        with pytest.raises(sdk().NotFoundError, match="Not found"):
            run(ask(server, options={"base_url": server.url + "/v1"}))
    assert [error.status for error in server.refused] == [401, 404, 400, 413, 404]
    assert server.requests == []


BREAKS: list[tuple[Any, str]] = [
    (Reset(), "anthropic:APIConnectionError"),
    (Reset(after=4), "httpx2:ReadError"),
    (Malformed(), "json:JSONDecodeError"),
    (ErrorEvent(), "anthropic:APIStatusError"),
]


@pytest.mark.parametrize(("fault", "shown"), BREAKS, ids=[repr(fault) for fault, _ in BREAKS])
def test_a_broken_stream_raises_an_error_and_keeps_its_turn(fault: Any, shown: str) -> None:
    with StrictServer(by_name({"alice": [say("after all")]})) as server:
        server.faults.push(fault)
        with pytest.raises(sdk(shown)):
            run(ask(server))
        assert texts(run(ask(server))) == "after all"
        assert server.faults.left == 0


def test_a_clean_end_half_way_raises_no_error() -> None:
    """An agent must detect it by the missing stop reason and the partial text."""
    with StrictServer(always(say("hello"))) as server:
        server.faults.push(Cut(answer=say("only a part of this arrives")))
        message = run(ask(server))
    assert message.stop_reason is None
    assert texts(message) == "only a "


def test_concurrent_requests_each_get_their_own_turns() -> None:
    names = [f"mate{number}" for number in range(20)]
    plays = {name: [say(f"{name} {turn}") for turn in range(3)] for name in names}

    async def life(made: anthropic.AsyncAnthropic, name: str) -> list[str]:
        heard = []
        for _ in range(3):
            system = f"You are '{name}', role: coder"
            async with made.messages.stream(
                model=MODEL,
                max_tokens=100,
                system=system,
                messages=[HELLO],
            ) as stream:
                heard.append(texts(await stream.get_final_message()))
        return heard

    async def lives(server: StrictServer) -> list[list[str]]:
        async with client(server) as made:
            return await asyncio.gather(*(life(made, name) for name in names))

    with StrictServer(by_name(plays)) as server:
        heard = run(lives(server))
    assert heard == [[f"{name} {turn}" for turn in range(3)] for name in names]
    assert len(server.requests) == 60


def test_an_exception_of_the_test_s_model_is_raised_at_the_end() -> None:
    def model(asked: Asked) -> Answer:
        raise LookupError(asked.name)

    with (
        pytest.raises(LookupError, match="alice"),
        StrictServer(model) as server,
        pytest.raises(sdk().InternalServerError),
    ):
        run(ask(server))


def test_an_incomplete_request_of_a_killed_client_is_ignored() -> None:
    """The body is not invalid: the killed client never sent the rest of it."""
    with StrictServer(by_name({})) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        with socket.create_connection(address) as cut:
            cut.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 100\r\n\r\n{")
            cut.shutdown(socket.SHUT_WR)
            assert cut.recv(1) == b""
        assert server.refused == []
