"""The listening socket: reads requests, one thread a connection, and closes them all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.strict.wire import Wire

POLL_SECONDS = 0.01  # how long closing waits for the accepting thread
JOIN_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One HTTP request.

    Attributes:
        method: `GET` or `POST`.
        path: without the query.
        headers: their names in lower case.
        data: the body.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    data: bytes


class Listener(ThreadingHTTPServer):
    """A server on a free port of 127.0.0.1 that hands each request to `serve`."""

    request_queue_size = 128

    def __init__(self, serve: Callable[[Incoming, Wire], None]) -> None:
        self.serve = serve
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads_begun: list[threading.Thread] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> None:
        """Accept connections in a thread."""
        self._begin(self.serve_forever, POLL_SECONDS)

    def close(self) -> None:
        """Stop accepting, break every open connection and wait for the threads."""
        self.shutdown()
        with self._lock:
            for connection in self._open:
                _hang_up(connection)
        self.server_close()
        for thread in self._threads_begun:
            thread.join(JOIN_SECONDS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread that does not keep the process alive."""
        with self._lock:
            self._open.add(request)
        self._begin(self.process_request_thread, request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away is what many tests are about."""

    def _begin(self, work: Callable[..., None], *given: Any) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True, name="strict-server")
        self._threads_begun.append(thread)
        thread.start()


class Handler(BaseHTTPRequestHandler):
    """Reads the requests of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Listener

    def do_GET(self) -> None:  # http.server's name
        """Serve a request without a body."""
        self._serve(b"")

    def do_POST(self) -> None:  # http.server's name
        """Serve a request with a body, unless its client is killed before all of that was sent."""
        length = int(self.headers.get("content-length", "0"))
        data = self.rfile.read(length)
        if len(data) < length:
            self.close_connection = True
        else:
            self._serve(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server's name
        """Say nothing."""

    def _serve(self, data: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = self.path.partition("?")[0]
        incoming = Incoming(method=self.command, path=path, headers=headers, data=data)
        self.server.serve(incoming, Wire(self))


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the client was first
