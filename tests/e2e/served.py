"""`teamctl web` as a process, and requests to it as any program can send them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, ClassVar

from tests.e2e.harness import Project


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.

    Attributes:
        link: as it was printed.
        pid: of its process.
    """

    link: str
    pid: int

    @property
    def host(self) -> str:
        """The address and port in the link."""
        return self.link.removeprefix("http://").partition("/")[0]

    @property
    def address(self) -> tuple[str, int]:
        """The same, to connect to."""
        name, _, port = self.host.partition(":")
        return name, int(port)

    @property
    def token(self) -> str:
        """The token in the link."""
        return self.link.partition("#token=")[2]

    @property
    def headers(self) -> dict[str, str]:
        """What shows the token."""
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def ask(self, path: str, **options: Any) -> tuple[int, dict[str, str], bytes]:
        """Send one request; return the status, the headers and the content."""
        with self.opened(path, **options) as response:
            headers = {key.lower(): value for key, value in response.getheaders()}
            return response.status, headers, response.read()

    def get(self, path: str) -> Any:
        """Return a document."""
        status, _, content = self.ask(f"/api/{path}")
        assert status == 200, content
        return json.loads(content)

    def act(self, what: str, /, **values: Any) -> tuple[int, str]:
        """Have something done; return the status and the sentence."""
        status, _, content = self.ask(f"/api/do/{what}", body=json.dumps(values))
        found = json.loads(content)
        return status, found.get("text") or found["error"]

    @contextmanager
    def opened(
        self, path: str, *, body: str | None = None, headers: dict[str, str] | None = None
    ) -> Iterator[HTTPResponse]:
        """Send a request, and keep the answer open."""
        connection = HTTPConnection(*self.address, timeout=20)
        try:
            given = self.headers if headers is None else headers
            connection.request("GET" if body is None else "POST", path, body, given)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def send(self, content: bytes) -> bytes:
        """Send bytes, and return all that comes until the server closes."""
        with socket.create_connection(self.address, timeout=20) as made:
            made.sendall(content)
            return b"".join(iter(lambda: made.recv(1 << 16), b""))


def events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream."""
    found: dict[str, Any] = {}
    for line in response:
        key, colon, value = line.decode().rstrip("\n").partition(": ")
        if colon and key:
            found[key] = value
        elif not line.strip() and found:
            yield {**found, "data": json.loads(found["data"])}
            found = {}


class _Tunnel(BaseRequestHandler):
    """Passes bytes on in both directions, as `ssh -L` does."""

    to: ClassVar[tuple[str, int]]

    def handle(self) -> None:
        """Serve one connection."""
        with socket.create_connection(self.to, timeout=20) as there:
            back = Thread(target=_pass_on, args=(there, self.request), daemon=True)
            back.start()
            _pass_on(self.request, there)
            back.join()


def _pass_on(begin: socket.socket, end: socket.socket) -> None:
    with suppress(OSError):
        while content := begin.recv(1 << 16):
            end.sendall(content)
    with suppress(OSError):
        end.shutdown(socket.SHUT_WR)


@contextmanager
def tunnel(to: tuple[str, int], *, begin: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[int]:
    """Lead a port of its own to another one until the end of the block; yield its number."""
    kind = type("Tunnel", (_Tunnel,), {"to": to})
    with ThreadingTCPServer(begin, kind) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def served(project: Project, *options: str) -> Iterator[Server]:
    """Run `teamctl web` until the end of the block; it ends as it should."""
    with project.serving("teamctl", "web", *options) as (pid, link):
        yield Server(link, pid)
