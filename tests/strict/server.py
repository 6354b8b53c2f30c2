"""The strict server: the Messages API on a local port, as strict as the real one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.strict.asked import Asked, Model, by_name
from tests.strict.blocks import ApiError
from tests.strict.cache import prompt_tokens
from tests.strict.exchange import Accepted, Exchange, Memory, Plan
from tests.strict.rules import (
    Terms,
    check_count,
    check_create,
    check_headers,
    entry,
    listing,
    parse_body,
)
from tests.strict.wire import Wire

POLL_SECONDS = 0.01  # how long closing waits for the accepting thread
JOIN_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One HTTP request.

    Attributes:
        method: `GET` or `POST`.
        path: the path without the query.
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
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: many tests are about clients that disconnect."""

    def _begin(self, work: Callable[..., None], *given: Any) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True, name="strict-server")
        self._threads_begun.append(thread)
        thread.start()


class Handler(BaseHTTPRequestHandler):
    """Reads the requests of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Listener

    def do_GET(self) -> None:  # the name is set by http.server
        """Serve a request without a body."""
        self._serve(b"")

    def do_POST(self) -> None:  # the name is set by http.server
        """Serve a request with a body; drop it if the client dies before sending all of it."""
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
        return  # the client disconnected first


__all__ = ["Accepted", "Asked", "StrictServer", "by_name"]

MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")


class StrictServer:
    """A server for the length of a `with` block.

    Attributes:
        requests: the accepted requests, in order of arrival.
        refused: the refused requests, except requests for a model's page; most tests assert that it
            is empty.
        broken: exceptions of the test's own model; the first is raised again at the end.
        faults: the plan of faults.
    """

    def __init__(
        self,
        answer: Model,
        *,
        keys: tuple[str, ...] = ("test-key",),
        models: tuple[str, ...] = MODELS,
        context_tokens: int = 200_000,
        output_tokens: int = 128_000,
        retires_at: str | None = None,
        no_page_status: int | None = None,
    ) -> None:
        self._answer = answer
        self._terms = Terms(
            keys=keys,
            models=models,
            context_tokens=context_tokens,
            output_tokens=output_tokens,
            retires_at=retires_at,
            no_page_status=no_page_status,
        )
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._memory = Memory()
        self._listener = Listener(self._serve)
        self.requests: list[Accepted] = []
        self.refused: list[ApiError] = []
        self.broken: list[Exception] = []
        self.faults = Plan()

    @property
    def url(self) -> str:
        """The value for `ANTHROPIC_BASE_URL`."""
        return self._listener.url

    def change_keys(self, *keys: str) -> None:
        """Accept only these keys from now on."""
        self._terms = replace(self._terms, keys=keys)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that point a child process to this server."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": self._terms.keys[0]}

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if self.broken and error is None:
            raise self.broken[0]

    def close(self) -> None:
        """End every connection and wait for their threads."""
        self._closed.set()
        self.faults.close()
        self._listener.close()

    def _serve(self, incoming: Incoming, wire: Wire) -> None:
        body: dict[str, Any] | None = None
        try:
            check_headers(incoming.headers, self._terms)
            if incoming.method == "POST":
                body = parse_body(incoming.headers.get("content-type", ""), incoming.data)
            self._route(incoming, body or {}, wire)
        except ApiError as error:
            error.body = body
            if incoming.method == "POST":
                with self._lock:
                    self.refused.append(error)
            wire.error(error)
        except ConnectionError:
            raise  # the client disconnected
        except Exception as error:  # noqa: BLE001  # whatever a test's model may raise
            with self._lock:
                self.broken.append(error)
            wire.error(ApiError(500, "api_error", f"the test's model raised {error!r}"))

    def _route(self, incoming: Incoming, body: dict[str, Any], wire: Wire) -> None:
        match incoming.method, incoming.path.split("/")[1:]:
            case "POST", ["v1", "messages"]:
                self._create(incoming, body, wire)
            case "POST", ["v1", "messages", "count_tokens"]:
                check_count(body, self._terms, self._memory.issued)
                wire.json(200, {"input_tokens": prompt_tokens(body)})
            case "GET", ["v1", "models"]:
                wire.json(200, listing(self._terms))
            case "GET", ["v1", "models", name]:
                wire.json(200, entry(name, self._terms))
            case _:
                raise ApiError(404, "not_found_error", "Not found")

    def _create(self, incoming: Incoming, body: dict[str, Any], wire: Wire) -> None:
        version = incoming.headers["anthropic-version"]
        check_create(body, version, self._terms, self._memory.issued)
        asked = Asked(body)
        with self._lock:
            # A single lock, so that faults and `requests` have the same order.
            fault = self.faults.take(asked)
            accepted = Accepted(
                body=body,
                headers=incoming.headers,
                received=time.monotonic(),
                asked=asked,
                fault=fault,
            )
            self.requests.append(accepted)
        omits = self._terms.kind_of(body["model"]).omits
        exchange = Exchange(accepted, self._answer, self._memory, self._closed, omits=omits)
        if fault is not None:
            fault.strike(wire, exchange)
            return
        events = exchange.events()
        wire.start()
        for data in events:
            wire.send(data)
        wire.finish()
