"""The page of a model, from the API, from servers that imitate it, and from silent servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pkgutil import resolve_name
from typing import Any

import pytest

from teamd.model_server.facts import ModelFacts
from tests.strict.server import StrictServer, by_name

MODEL = "claude-sonnet-5-5"


def ask(url: str, model: str = MODEL, **more: Any) -> dict[str, Any] | None:
    async def once() -> dict[str, Any] | None:
        made = resolve_name("teamd.models.claude:Claude")(
            base_url=url, key_command=None, headers={}, cache=True, key="test-key",
            **{"timeout_seconds": 30.0, **more},
        )  # fmt: skip
        try:
            page: dict[str, Any] | None = await made.ask_page(model)
            return page
        finally:
            await made.close()

    return asyncio.run(once())


def test_the_api_has_a_page_for_each_of_its_models() -> None:
    with StrictServer(by_name({}), context_tokens=1_000_000) as server:
        facts = ModelFacts.read(MODEL, ask(server.url))
        assert (facts.context_tokens, facts.adaptive_thinking) == (1_000_000, True)
        assert ask(server.url, "qwen/qwen3 coder") == {}
    assert server.requests == []


def test_without_a_server_there_is_no_answer() -> None:
    assert ask("http://127.0.0.1:9") is None
    with StrictServer(by_name({}), keys=("another",)) as server:
        assert ask(server.url) is None


@pytest.mark.parametrize(
    ("status", "body", "page"),
    [
        (200, b'{"id": "m"}', {"id": "m"}),
        (200, b"<html>welcome</html>", {}),
        (200, b"[1]", {}),
        (200, b"", {}),
        (200, b"\xff\xfe", {}),
        (200, b"[" * 100_000, {}),
        (400, b"{}", {}),
        (404, b"<html>not here</html>", {}),
        (405, b"", {}),
        (500, b"", None),
        (429, b"{}", None),
    ],
)
def test_an_invalid_page_yields_an_empty_result_and_a_failed_request_yields_none(
    status: int, body: bytes, page: dict[str, Any] | None
) -> None:
    async def answer(_: Any) -> Any:
        return resolve_name("httpx2:Response")(status, content=body)

    assert ask("http://there", transport=transport(answer)) == page


def test_a_silent_server_causes_a_timeout() -> None:
    async def wait(_: Any) -> Any:
        await asyncio.Event().wait()

    assert ask("http://there", transport=transport(wait), timeout_seconds=0.05) is None


def transport(answer: Callable[[Any], Awaitable[Any]]) -> Any:
    return resolve_name("httpx2:MockTransport")(answer)
