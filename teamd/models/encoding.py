"""Requests of the Messages API as JSON, with the marks for the server's prompt cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from teamd.models import Ask, Block, ChatMessage

_BREAKPOINT: Final = {"type": "ephemeral"}
_HOUR_BREAKPOINT: Final = {"type": "ephemeral", "ttl": "1h"}
_ANCHOR_STEP: Final = 4  # every so many user messages, one is kept in the cache for an hour
_CACHEABLE: Final = frozenset({"text", "tool_use", "tool_result"})
_MOST_MARKS: Final = 4  # of one request; tools and system prompt take one each

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode(part: Any) -> bytes:
    """Return a part of a request as compact JSON.

    Raises:
        ValueError: it contains a number that JSON cannot express, such as infinity.
    """
    return _encoder.encode(part).encode(errors="replace")


def size_of(part: Any) -> int:
    """Return how many bytes a part of a request takes."""
    return len(encode(part))


def digest_of(*parts: str, tools: Sequence[Block]) -> str:
    """Return a digest of parts of a request and of its tools."""
    return hashlib.sha256(encode([*parts, tools])).hexdigest()


def prefix_of(ask: Ask) -> str:
    """Return a digest of the common beginning of many teammates' requests: model and tools."""
    return digest_of(ask.model, tools=ask.tools)[:16]


def encode_body(ask: Ask, *, cache: bool, hour: bool = False) -> bytes:
    """Return the body of a streamed request, with options that all compatible servers take.

    Args:
        ask: the request.
        cache: whether the server should cache the request. The tools are marked separately:
            they are the same for many teammates, whose system prompts differ.
        hour: whether the cache is to keep the older part for an hour.
    """
    system: Block = {"type": "text", "text": ask.system}
    tools, messages = list(ask.tools), list(ask.messages)
    if cache:
        hour = hour and has_anchor(messages)  # before that, tools cost less for five minutes
        marks = breakpoints(messages, hour=hour)
        for place, message in marks.items():
            messages[place] = message
        tools[-1:] = [marked(tool, hour=hour) for tool in tools[-1:]]
        if len(marks) <= _MOST_MARKS - 2:
            system = marked(system, hour=hour)
    body = {"model": ask.model, "max_tokens": ask.max_tokens, "stream": True, **_options(ask)}
    return encode({**body, "system": [system], "tools": tools, "messages": messages})


def _options(ask: Ask) -> dict[str, Any]:
    """Return the options that the model is known to accept; thinking is not bound to them.

    Without `display` most models return thinking without its text.
    """
    options: dict[str, Any] = {}
    if ask.facts.adaptive_thinking:
        options["thinking"] = {"type": "adaptive", "display": "summarized"}
    if ask.effort in ask.facts.efforts:
        options["output_config"] = {"effort": ask.effort}
    return options


def breakpoints(messages: Sequence[ChatMessage], *, hour: bool = False) -> dict[int, ChatMessage]:
    """Return the user messages whose ends are marked for the prompt cache, by their indexes.

    The end of the last is written to the cache. The one before it ends the previous entry, and
    so is found even if it is further back than the 20 blocks that the server searches. Source: the
    API's documentation, "Prompt caching".

    Args:
        messages: the conversation.
        hour: whether every fourth user message is kept for an hour, the rest for five minutes. A
            teammate that wakes after ten minutes then pays only for the few messages after it.
            A write for an hour costs 2 times the price of input, for five minutes 1.25 times; only
            the request that ends with such a message pays the difference, and only for its end.
    """
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    anchors = users[_ANCHOR_STEP - 1 :: _ANCHOR_STEP] if hour else []
    # The last message is not yet in the cache: the anchor before it may be the only cached part.
    written = [place for place in anchors if place != users[-1]]
    # The API refuses an entry for an hour behind one for five minutes.
    newest = max(anchors, default=-1)
    places = sorted({*written[-1:], *users[-2:]})
    return {place: _marked(messages[place], hour=place <= newest) for place in places}


def has_anchor(messages: Sequence[ChatMessage]) -> bool:
    """Return whether a conversation is long enough to have a part that is kept for an hour."""
    users = [message for message in messages if message["role"] == "user"]
    return len(users) >= _ANCHOR_STEP


def _marked(message: ChatMessage, *, hour: bool) -> ChatMessage:
    *blocks, last = message["content"]
    if last["type"] in _CACHEABLE:
        last = marked(last, hour=hour)
    return {**message, "content": [*blocks, last]}


def marked(block: Block, *, hour: bool = False) -> Block:
    """Return a block or tool with a mark that makes the server cache the request up to its end."""
    return {**block, "cache_control": _HOUR_BREAKPOINT if hour else _BREAKPOINT}
