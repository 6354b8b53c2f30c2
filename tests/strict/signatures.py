"""Thinking signatures: tell a thinking block that was issued and is unchanged from any other."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def sign(thinking: str) -> str:
    """Return the signature of a text; another server knows it too, as after a restart."""
    digest = hashlib.sha512(b"issued by the strict server: " + thinking.encode()).digest()
    return base64.b64encode(digest).decode()


def genuine(block: Mapping[str, Any]) -> bool:
    """Whether a thinking or redacted thinking block is one that was issued, unchanged."""
    if block["type"] == "redacted_thinking":
        return bool(block["data"] == sign("redacted"))
    return bool(block["signature"] == sign(block["thinking"]))
