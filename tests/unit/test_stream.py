"""Any bytes as a reply: a reply whose blocks the API takes back, or an error in one sentence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise, repeat
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from teamd.agent.conversation.state import _returnable
from teamd.models import (
    INVALID,
    Reply,
    TransientError,
    explain_invalid,
    parse_tool_input,
    stream,
)
from teamd.models.encoding import encode
from teamd.models.stream import ErrorEvent, ReplyBuilder, read_reply
from tests.strict.blocks import check_blocks
from tests.strict.odd import WHOLE, block, call, end, message, sse, start, text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(["type", "index", "delta", "content_block", "message", "usage", "error"])
PARTS = st.sampled_from(
    [start(), *text(), *call(), *end(), *block(None, {"type": "thinking", "thinking": "Hm"})]
)
ODD_PARTS = st.tuples(PARTS, KEYS, JSON).map(lambda odd: {**odd[0], odd[1]: odd[2]})
EVENTS = st.lists(PARTS | ODD_PARTS | st.dictionaries(KEYS, JSON, max_size=3), max_size=12)


def read(*chunks: bytes) -> Reply | Exception:
    """Return the reply of a body, or the error of the kind that a caller expects."""

    async def arrive() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    builder = ReplyBuilder()
    try:
        asyncio.run(read_reply(arrive(), builder, silence_seconds=60))
        return builder.build("m")
    except (TransientError, ErrorEvent) as error:
        return error


def check(found: Reply | Exception) -> None:
    """Fail unless the API takes the reply back, or the error is one line."""
    if isinstance(found, Exception):
        assert "\n" not in str(found)
        return
    encode(found.content)
    for one in found.content:
        if one["type"] == "tool_use":
            one["id"] = one["id"] if one["id"].isascii() and one["id"].isalnum() else "own"
    check_blocks(_returnable(found.content), "assistant", "content")


@settings(max_examples=80, deadline=None)
@given(EVENTS, st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_any_events_are_a_reply_or_an_error(
    events: list[dict[str, Any]], names: bool, stop: str
) -> None:
    check(read(sse(events, names=names, stop=stop, gap=stop)))


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=200))
@example(b"data: " + b"[" * 50_000)
@example(b"{" * 50_000)
@example(json.dumps({"content": [{"type": "text", "text": float("nan")}]}).encode())
def test_any_bytes_are_a_reply_or_an_error(body: bytes) -> None:
    check(read(body))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_stream_is_the_same_however_it_is_cut_into_chunks(data: st.DataObject) -> None:
    body = sse(WHOLE)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=20)))
    edges = [0, *cuts, len(body)]
    chunks = [body[a:b] for a, b in pairwise(edges)]
    assert read(*chunks) == read(body)


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=40) | JSON.map(json.dumps))
def test_the_input_of_a_call_is_an_object_or_is_explained(given_text: str) -> None:
    found = parse_tool_input(given_text)
    encode(found)
    if found == {INVALID: given_text}:
        assert explain_invalid(found)
    else:
        assert found == json.loads(given_text or "{}")
        assert explain_invalid(found) is None or INVALID in found


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(message()[:-20], id="half a JSON body"),
        pytest.param(sse([start(usage={"input_tokens": 0}), *text()]), id="zeros at the start"),
    ],
)
def test_half_a_reply_without_a_count_of_its_input_counts_in_full(body: bytes) -> None:
    async def arrive() -> AsyncIterator[bytes]:
        yield body

    builder = ReplyBuilder()

    async def take() -> None:
        await read_reply(arrive(), builder, silence_seconds=60)
        builder.build("m")

    with pytest.raises(TransientError):
        asyncio.run(take())
    assert builder.begun
    assert builder.usage is None


@pytest.mark.parametrize("chunk", [b"a", b"a\n"], ids=["one line", "many lines"])
def test_a_message_in_place_of_a_stream_that_never_ends_counts_in_full(
    monkeypatch: pytest.MonkeyPatch, chunk: bytes
) -> None:
    monkeypatch.setattr(stream, "MOST_BYTES", 1 << 20)

    async def arrive() -> AsyncIterator[bytes]:
        yield b'{"content": "'
        for piece in repeat(chunk * 4096):
            yield piece

    with pytest.raises(TransientError, match="sent more than") as caught:
        asyncio.run(read_reply(arrive(), ReplyBuilder(), silence_seconds=60))
    assert caught.value.begun


@pytest.mark.parametrize(
    ("first", "then", "pause_seconds"),
    [
        pytest.param(block(0, {}), text()[1:2] * 1000, 0, id="text of an unusable reply"),
        pytest.param(WHOLE[:1], [{"type": "keepalive"}], 0.001, id="unknown events"),
    ],
)
def test_a_reply_that_never_ends_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
    first: list[dict[str, Any]],
    then: list[dict[str, Any]],
    pause_seconds: float,
) -> None:
    monkeypatch.setattr(stream, "MOST_BYTES", 1 << 20)

    async def arrive() -> AsyncIterator[bytes]:
        yield sse(first)
        for chunk in repeat(sse(then)):
            await asyncio.sleep(pause_seconds)
            yield chunk

    async def take() -> None:
        async with asyncio.timeout(20):
            await read_reply(arrive(), ReplyBuilder(), silence_seconds=0.2)

    with pytest.raises(TransientError):
        asyncio.run(take())
