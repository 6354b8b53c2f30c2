"""A reply that no server has given, for the first calls of a process that are to nobody."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx2

URL: Final = "http://127.0.0.1:9"  # where nobody listens
_EVENTS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
        "model": "none", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
)  # fmt: skip


def transport() -> httpx2.MockTransport:
    """Return what answers each request alike; it has no network."""
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _EVENTS)
    headers = {"content-type": "text/event-stream"}
    return httpx2.MockTransport(lambda _: httpx2.Response(200, text=text, headers=headers))
