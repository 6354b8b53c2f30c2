"""The prompt cache: breakpoints, and which part of a request is read, written or not cached."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tests.strict.blocks import Block, listed, refuse, walk

BREAKPOINTS = 4
LOOK_BACK = 20  # an older entry is found up to so many blocks before a breakpoint
CHARACTERS_PER_TOKEN = 4
TTL_SECONDS: Final = {"5m": 300, "1h": 3600}


class _Entry(NamedTuple):
    seconds: int
    expires: float


def reckon(value: Any) -> int:
    """Estimate the tokens of a part of a request; equal parts get equal estimates."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def prompt_tokens(body: Mapping[str, Any]) -> int:
    """Estimate the tokens of tools, system prompt and messages, without cache breakpoints."""
    return sum(reckon(_bare(block)) for _, block in walk(body))


def check_breakpoints(body: Mapping[str, Any]) -> None:
    """Refuse too many breakpoints, or a long-lived one after a short-lived one."""
    ttls = list(_ttls(body))
    if len(ttls) > BREAKPOINTS:
        refuse(
            f"A maximum of {BREAKPOINTS} blocks with cache_control may be provided. "
            f"Found {len(ttls)}.",
        )
    if "5m" in ttls and "1h" in ttls[ttls.index("5m") :]:
        refuse(
            "cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
            "cache_control block. Note that blocks are processed in the following order: "
            "`tools`, `system`, `messages`.",
        )


class PromptCache:
    """The cached prefixes that have not expired; thread-safe and without a minimum size.

    It bills as the API documentation describes: tokens up to the longest cached prefix are read;
    from there to the last one-hour breakpoint they are written for an hour, and from there to the
    last breakpoint for five minutes. A breakpoint inside the read prefix writes nothing. Only the
    entry that was read has its expiry renewed.

    Args:
        now: returns the time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._written: dict[str, _Entry] = {}

    def account(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Cache a request's prefixes and return the input part of its usage."""
        digest = hashlib.sha256(str(body["model"]).encode())
        total, prefixes, marks = 0, [("", 0)], {}
        for place, block in walk(body):
            bare = _bare(block)
            kind = place.split(".")[0]
            digest.update(json.dumps([kind, _role(body, place), bare]).encode())
            total += reckon(bare)
            prefixes.append((digest.hexdigest(), total))
            for mark in (*_nested(block), block.get("cache_control")):
                if mark:
                    marks[len(prefixes) - 1] = mark.get("ttl", "5m")
        if mark := body.get("cache_control"):
            marks[len(prefixes) - 1] = mark.get("ttl", "5m")
        with self._lock:
            found = max((self._find(prefixes, mark) for mark in marks), default=0)
            self._write(prefixes, marks, found)
        hour = max((mark for mark, ttl in marks.items() if ttl == "1h"), default=0)
        ends = (found, max(found, hour), max(found, *marks) if marks else 0)
        return _usage(total, *(prefixes[end][1] for end in ends))

    def _find(self, prefixes: list[tuple[str, int]], mark: int) -> int:
        near = range(mark, max(0, mark - LOOK_BACK - 1), -1)
        return next((place for place in near if self._lives(prefixes[place][0])), 0)

    def _lives(self, digest: str) -> bool:
        entry = self._written.get(digest)
        return entry is not None and self._now() < entry.expires

    def _write(self, prefixes: list[tuple[str, int]], marks: Mapping[int, str], found: int) -> None:
        new = {prefixes[mark][0]: TTL_SECONDS[ttl] for mark, ttl in marks.items() if mark > found}
        if found:
            digest = prefixes[found][0]
            new[digest] = self._written[digest].seconds
        now = self._now()
        self._written.update({key: _Entry(ttl, now + ttl) for key, ttl in new.items()})


def _usage(total: int, read: int, hour: int, marked: int) -> dict[str, Any]:
    """Return the usage, given the prompt's tokens up to each boundary."""
    return {
        "input_tokens": total - marked,
        "cache_creation_input_tokens": marked - read,
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": marked - hour,
            "ephemeral_1h_input_tokens": hour - read,
        },
        "service_tier": "standard",
    }


def _role(body: Mapping[str, Any], place: str) -> str:
    kind, index = place.split(".")[:2]
    return str(body["messages"][int(index)]["role"]) if kind == "messages" else ""


def _bare(block: Block) -> Block:
    bare = {key: value for key, value in block.items() if key != "cache_control"}
    if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
        bare["content"] = [_bare(part) for part in block["content"]]
    return bare


def _nested(block: Block) -> Iterator[Mapping[str, Any]]:
    if block.get("type") == "tool_result":
        for part in listed(block.get("content") or [], ""):
            if part.get("cache_control"):
                yield part["cache_control"]


def _ttls(body: Mapping[str, Any]) -> Iterator[str]:
    for _, block in walk(body):
        for mark in (*_nested(block), block.get("cache_control")):
            if mark:
                yield mark.get("ttl", "5m")
    if mark := body.get("cache_control"):
        yield mark.get("ttl", "5m")
