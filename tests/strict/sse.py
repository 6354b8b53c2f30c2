"""The event stream: encodes a whole message as the events the real service streams it in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

PIECE = 7  # characters in a delta, unless the text is so long that it would take too many


def encode(message: Mapping[str, Any]) -> list[bytes]:
    """Return the events, one bytes object each, from `message_start` to `message_stop`."""
    return list(_events(message))


def event(name: str, **data: Any) -> bytes:
    """Encode one event; text stays UTF-8, so that a chunk may end within a character."""
    line = json.dumps({"type": name, **data}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {line}\n\n".encode()


def _events(message: Mapping[str, Any]) -> Iterator[bytes]:
    usage = message["usage"]
    blank: dict[str, Any] = {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
    }
    started = {**message, **blank, "usage": {**usage, "output_tokens": 1}}
    yield event("message_start", message=started)
    for index, block in enumerate(message["content"]):
        yield event("content_block_start", index=index, content_block=_opening(block))
        if index == 0:
            yield event("ping")
        for delta in _deltas(block):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    delta = {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    counts = {key: count for key, count in usage.items() if key.endswith("_tokens")}
    yield event("message_delta", delta=delta, usage=counts)
    yield event("message_stop")


def _opening(block: Mapping[str, Any]) -> dict[str, Any]:
    empty: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}, "caller": {"type": "direct"}},
    }
    return {**block, **empty.get(block["type"], {})}


def _deltas(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            for piece in _pieces(block["text"]):
                yield {"type": "text_delta", "text": piece}
        case "thinking":
            for piece in _pieces(block["thinking"]):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            given = block["input"]
            whole = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            # The real service opens with an empty piece, and sends nothing more for `{}`.
            for piece in ("", *_pieces("" if whole == "{}" else whole)):
                yield {"type": "input_json_delta", "partial_json": piece}


def _pieces(text: str) -> list[str]:
    size = max(PIECE, len(text) // 50)
    return [text[at : at + size] for at in range(0, len(text), size)]
