"""What was issued: the answers sent, as far as the rules look back at them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any


class Issued:
    """The answers that one server has sent. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thinking: dict[str, tuple[str, ...]] = {}
        self._paused: set[tuple[str, ...]] = set()

    def remember(self, message: Mapping[str, Any]) -> None:
        """Take note of a message that is being sent."""
        content = message["content"]
        with self._lock:
            for block in content:
                if block["type"] == "tool_use":
                    self._thinking[block["id"]] = thoughts(content)
            if message["stop_reason"] == "pause_turn":
                self._paused.add(_gist(content))

    def thinking_before(self, tool_use_id: str) -> tuple[str, ...]:
        """Return the signatures issued in one message with a call; none for a foreign call."""
        with self._lock:
            return self._thinking.get(tool_use_id, ())

    def paused(self, content: Sequence[Mapping[str, Any]]) -> bool:
        """Whether this content was sent with stop reason `pause_turn`."""
        with self._lock:
            return _gist(content) in self._paused


def thoughts(content: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the signatures of a message's thinking blocks, in order."""
    keys = {"thinking": "signature", "redacted_thinking": "data"}
    return tuple(block.get(keys[block["type"]], "") for block in content if block["type"] in keys)


def _gist(content: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    keys = {"text": "text", "tool_use": "id", "thinking": "signature", "redacted_thinking": "data"}
    return tuple(str(block[keys[block["type"]]]) for block in content)
