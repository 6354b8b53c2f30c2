"""One HTTP response: the only module that writes to a client's connection."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.strict.errors import ApiError
from tests.strict.replies import new_id


class Wire:
    """The response to one request: whole by `reply`, or in pieces from `start` to `finish`.

    Attributes:
        request_id: sent as the `request-id` header.
    """

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler
        self.request_id = new_id("req")

    def reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a whole response."""
        self._head(status, {"content-length": str(len(body)), **headers})
        self._handler.wfile.write(body)

    def json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole response of JSON."""
        body = json.dumps(value).encode()
        self.reply(status, body, {"content-type": "application/json", **(headers or {})})

    def error(self, error: ApiError, headers: Mapping[str, str] | None = None) -> None:
        """Send a refusal."""
        self.json(error.status, error.encode(self.request_id), headers)

    def start(self) -> None:
        """Begin an event stream."""
        kind = "text/event-stream; charset=utf-8"
        chunked = {"content-type": kind, "transfer-encoding": "chunked"}
        self._head(200, {**chunked, "cache-control": "no-cache"})

    def send(self, data: bytes) -> None:
        """Send a piece of the stream, as a chunk of its own."""
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def finish(self) -> None:
        """End the stream as HTTP wants it."""
        self._handler.wfile.write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Break the connection: the client gets a reset, not an end."""
        connection = self._handler.connection
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # http.server would shut the connection down first, which the client sees as an end.
        os.close(connection.detach())
        self._handler.close_connection = True

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self._handler.send_response(status)
        for name, value in {"request-id": self.request_id, **headers}.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()
