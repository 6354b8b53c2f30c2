"""The prompt cache: breakpoints, and which part of a request is read, written or neither."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any

from tests.strict.blocks import listed, walk
from tests.strict.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.strict.blocks import Block

BREAKPOINTS = 4
LOOK_BACK = 20  # blocks before a breakpoint at which an older entry is still found
CHARACTERS_PER_TOKEN = 4


def reckon(value: Any) -> int:
    """Estimate the tokens of a part of a request; the same part always has the same number."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def prompt_tokens(body: Mapping[str, Any]) -> int:
    """Estimate the tokens of tools, system prompt and messages, breakpoints not counted."""
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
    """The prefixes that were written, without expiry or least size. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: set[str] = set()

    def account(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Write a request's prefixes and return the input's part of its usage."""
        digest = hashlib.sha256(str(body["model"]).encode())
        total, prefixes, marks = 0, [("", 0)], []
        for place, block in walk(body):
            bare = _bare(block)
            kind = place.split(".")[0]
            digest.update(json.dumps([kind, _role(body, place), bare]).encode())
            total += reckon(bare)
            prefixes.append((digest.hexdigest(), total))
            if block.get("cache_control") or any(_nested(block)):
                marks.append(len(prefixes) - 1)
        if body.get("cache_control"):
            marks.append(len(prefixes) - 1)
        marked = prefixes[marks[-1]][1] if marks else 0
        with self._lock:
            read = max((self._found(prefixes, mark) for mark in marks), default=0)
            self._written.update(prefixes[mark][0] for mark in marks)
        return _usage(total, marked, read, hours="1h" in _ttls(body))

    def _found(self, prefixes: list[tuple[str, int]], mark: int) -> int:
        near = prefixes[max(1, mark - LOOK_BACK) : mark + 1]
        return max((tokens for digest, tokens in near if digest in self._written), default=0)


def _usage(total: int, marked: int, read: int, *, hours: bool) -> dict[str, Any]:
    written = marked - read
    return {
        "input_tokens": total - marked,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": 0 if hours else written,
            "ephemeral_1h_input_tokens": written if hours else 0,
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
