"""One HTTP response: the only module that writes to a client's connection."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.strict.blocks import ApiError
from tests.strict.replies import new_id

PIECE = 7  # characters per delta; very long texts use longer ones


def encode(message: Mapping[str, Any]) -> list[bytes]:
    """Return the events from `message_start` to `message_stop`, each as a bytes object."""
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
            # The real service sends an empty delta first, and nothing more for `{}`.
            for piece in ("", *_pieces("" if whole == "{}" else whole)):
                yield {"type": "input_json_delta", "partial_json": piece}


def _pieces(text: str) -> list[str]:
    size = max(PIECE, len(text) // 50)
    return [text[at : at + size] for at in range(0, len(text), size)]


class Wire:
    """The response to one request: whole by `reply`, or in chunks from `start` to `finish`.

    Attributes:
        request_id: sent as the `request-id` header.
    """

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler
        self.request_id = new_id("req")

    def reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a complete response."""
        self._head(status, {"content-length": str(len(body)), **headers})
        self._handler.wfile.write(body)

    def json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send a complete JSON response."""
        body = json.dumps(value).encode()
        self.reply(status, body, {"content-type": "application/json", **(headers or {})})

    def error(self, error: ApiError, headers: Mapping[str, str] | None = None) -> None:
        """Send an API error."""
        self.json(error.status, error.encode(self.request_id), headers)

    def start(self) -> None:
        """Begin an event stream."""
        kind = "text/event-stream; charset=utf-8"
        chunked = {"content-type": kind, "transfer-encoding": "chunked"}
        self._head(200, {**chunked, "cache-control": "no-cache"})

    def send(self, data: bytes) -> None:
        """Send a part of the stream as its own chunk."""
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def finish(self) -> None:
        """End the stream with the final empty chunk of HTTP."""
        self._handler.wfile.write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Break the connection: the client sees a reset instead of a clean end."""
        connection = self._handler.connection
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # http.server would shut the connection down first, which the client sees as a clean end.
        os.close(connection.detach())
        self._handler.close_connection = True

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self._handler.send_response(status)
        for name, value in {"request-id": self.request_id, **headers}.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()
