"""Requests as JSON: the parts of the last request are not encoded again.

A conversation grows at its end, and each request holds all of it. To encode the whole of it each
time makes a thousand turns cost the square of a thousand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress, count
from operator import is_not
from typing import Any, Final, Generic, TypeVar

from teamd.models import Ask, Block, ChatMessage

T = TypeVar("T")

_BREAKPOINT: Final = {"type": "ephemeral"}
_HOUR_BREAKPOINT: Final = {"type": "ephemeral", "ttl": "1h"}
_ANCHOR_STEP: Final = 4  # every so many user messages, one is kept in the cache for an hour
_CACHEABLE: Final = frozenset({"text", "tool_use", "tool_result"})
_KEPT: Final = 4  # a process has few conversations, whose requests begin alike each time

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class PerMessage(Generic[T]):
    """Returns a value for each message of a request, computed once for each.

    The same object at the same index as in the last request has the same value: to change a
    message, put another object in its place.
    """

    def __init__(self, compute: Callable[[ChatMessage], T]) -> None:
        self._compute = compute
        self._messages: list[ChatMessage] = []
        self._values: list[T] = []

    def values(self, messages: Sequence[ChatMessage]) -> list[T]:
        """Return the value of each message."""
        same = count_same(messages, self._messages)
        self._values[same:] = [self._compute(message) for message in messages[same:]]
        self._messages[same:] = messages[same:]
        return self._values


def count_same(messages: Sequence[ChatMessage], others: Sequence[ChatMessage]) -> int:
    """Return how many objects two lists have in common, from their beginnings on."""
    differing = compress(count(), map(is_not, messages, others))
    return next(differing, min(len(messages), len(others)))


def encode(part: Any) -> bytes:
    """Return a part of a request as JSON, as short as JSON can be.

    Raises:
        ValueError: it holds a number that JSON has no word for.
    """
    return _encoder.encode(part).encode(errors="replace")


def size_of(part: Any) -> int:
    """Return how many bytes a part of a request takes."""
    return len(encode(part))


@lru_cache(maxsize=_KEPT)
def size_of_text(text: str) -> int:
    """Return the bytes of a text that is a part of many requests."""
    return size_of(text)


def size_of_list(sizes: Sequence[int]) -> int:
    """Return how many bytes a list takes whose items take so many."""
    return sum(sizes) + max(len(sizes) - 1, 0) + len("[]")


class _Tools:
    """A list of tools as JSON, and the digests of requests that begin with it."""

    def __init__(self, listed: Sequence[Block]) -> None:
        self.listed = listed
        self.encoded = b"[%s]" % b",".join(map(encode, listed))
        self._digests: dict[tuple[str, ...], str] = {}

    def digest(self, parts: tuple[str, ...]) -> str:
        """Return the digest of other parts of a request and of this list."""
        if parts not in self._digests:
            if len(self._digests) >= 2 * _KEPT:
                self._digests.clear()
            head = encode(list(parts)).removesuffix(b"]")
            self._digests[parts] = hashlib.sha256(b"%s,%s]" % (head, self.encoded)).hexdigest()
        return self._digests[parts]


_known_tools: Final[list[_Tools]] = []


def _known(tools: Sequence[Block]) -> _Tools:
    """Return the encoding of this list object; another object is encoded again, even if equal."""
    for known in _known_tools:
        if known.listed is tools:
            return known
    _known_tools[:] = [found := _Tools(tools), *_known_tools[: _KEPT - 1]]
    return found


def encode_tools(tools: Sequence[Block], *, mark: bool = False, hour: bool = False) -> bytes:
    """Return the tools of a request, which are encoded once.

    Args:
        tools: to change a tool, make another list.
        mark: whether the last of them is `marked`.
        hour: whether the cache is to keep them for an hour.
    """
    encoded = _known(tools).encoded
    if mark and tools:
        return b"%s,%s]" % (
            encoded.removesuffix(b"}]"),
            encode(marked({}, hour=hour)).removeprefix(b"{"),
        )
    return encoded


def encode_body(
    ask: Ask,
    messages: Sequence[bytes],
    *,
    mark: bool,
    mark_system: bool = True,
    hour: bool = False,
) -> bytes:
    """Return the body of a streamed request, with options that all compatible servers take.

    Args:
        ask: the request.
        messages: its messages, encoded.
        mark: whether the server is to keep the tools and the system prompt in its cache. The tools
            are the same for many teammates, whose system prompts differ.
        mark_system: whether one of the four breakpoints is left for the system prompt.
        hour: whether the cache is to keep both for an hour.
    """
    system: Block = {"type": "text", "text": ask.system}
    frame = {"model": ask.model, "max_tokens": ask.max_tokens, "stream": True, **_options(ask)}
    if mark and mark_system:
        system = marked(system, hour=hour)
    head = encode({**frame, "system": [system]}).removesuffix(b"}")
    tools = encode_tools(ask.tools, mark=mark, hour=hour)
    return b'%s,"tools":%s,"messages":[%s]}' % (head, tools, b",".join(messages))


def _options(ask: Ask) -> dict[str, Any]:
    """Return the options that the model is known to take; thinking is not bound to them.

    Without `display` most models return thinking without its text.
    """
    options: dict[str, Any] = {}
    if ask.facts.adaptive_thinking:
        options["thinking"] = {"type": "adaptive", "display": "summarized"}
    if ask.effort in ask.facts.efforts:
        options["output_config"] = {"effort": ask.effort}
    return options


def digest_of(*parts: str, tools: Sequence[Block]) -> str:
    """Return a digest of parts of a request and of its tools."""
    return _known(tools).digest(parts)


def breakpoints(messages: Sequence[ChatMessage], *, hour: bool = False) -> dict[int, ChatMessage]:
    """Return the user messages whose ends are marked for the prompt cache, by their places.

    The end of the last is written to the cache. The one before ends the last request's entry, and
    so is found even if more than the 20 blocks that the server looks back are between. Source: the
    API's documentation, "Prompt caching".

    Args:
        messages: the conversation.
        hour: whether every fourth user message is kept for an hour, the rest for five minutes. A
            teammate that wakes after ten minutes then pays for the few messages behind it alone.
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
    """Return a block, or a tool, up to whose end the server keeps a request in its cache."""
    return {**block, "cache_control": _HOUR_BREAKPOINT if hour else _BREAKPOINT}


def prefix_of(ask: Ask) -> str:
    """Return a digest of what many teammates' requests begin with: the model's name, the tools."""
    return digest_of(ask.model, tools=ask.tools)[:16]
