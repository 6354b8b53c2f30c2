"""Thinking signatures: each is bound to all that came before its block.

Source: the API's documentation, "Preserved thinking". System prompt, tools and every earlier block
count, thinking blocks too; cache breakpoints do not.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Self

_REDACTED: Final = "redacted"


class Prefix:
    """What a request holds before a block; grows with each block.

    It needs no memory of requests: another server knows the same signatures, as after a restart.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        system = body.get("system") or []
        if isinstance(system, str):
            system = [{"type": "text", "text": system}]
        tools = body.get("tools") or []
        self._digest = hashlib.sha512(_encode([system, tools]))

    @classmethod
    def of_request(cls, body: Mapping[str, Any]) -> Self:
        """Return what is before the reply to a whole request."""
        prefix = cls(body)
        for message in body["messages"]:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks:
                prefix.add(message["role"], block)
        return prefix

    def add(self, role: str, block: Mapping[str, Any]) -> None:
        """Go on behind the next block."""
        self._digest.update(_encode([role, block]))

    def sign(self, thinking: str) -> str:
        """Return the signature of a thinking block with this text."""
        digest = self._digest.copy()
        digest.update(_encode(thinking))
        return base64.b64encode(digest.digest()).decode()

    def sign_redacted(self) -> str:
        """Return the data of a redacted thinking block."""
        return self.sign(_REDACTED)

    def is_genuine(self, block: Mapping[str, Any]) -> bool:
        """Return whether a thinking block was issued behind this very prefix, and is unchanged."""
        if block["type"] == "redacted_thinking":
            return bool(block["data"] == self.sign_redacted())
        return bool(block["signature"] == self.sign(block["thinking"]))


def _encode(part: Any) -> bytes:
    return json.dumps(_without_breakpoints(part), sort_keys=True).encode()


def _without_breakpoints(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: _without_breakpoints(value)
            for key, value in part.items()
            if key != "cache_control"
        }
    return [_without_breakpoints(one) for one in part] if isinstance(part, list) else part
