"""A Messages API server that does almost nothing, so that benches do not measure the server.

It runs in a separate process until its standard input ends. It gives all requests the same answer,
in one write and without Nagle's delay, and reads only a request's length and its teammate's name.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from tests.strict import wire

_KEY: Final = "sk-ant-bench-0123456789"
_NAME: Final = re.compile(rb"You are '([^']*)'")
_LENGTH: Final = re.compile(rb"(?i)content-length: (\d+)")
_LONGEST_SECONDS: Final = 120.0
_MOST_BYTES: Final = 1 << 26
_USAGE: Final = {
    "input_tokens": 10, "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0, "output_tokens": 5,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How requests are answered.

    Attributes:
        calls: model calls per turn; each but the last is answered with a tool call.
        tool: the tool's name.
        given: its input; `{}` in a value is replaced by the number of the request.
        seconds: the duration of each answer.
    """

    calls: int = 1
    tool: str = "task_get"
    given: dict[str, str] = field(default_factory=lambda: {"task_id": "{}"})
    seconds: float = 0.0


class Request(NamedTuple):
    """An answered request; times are by the monotonic clock.

    Attributes:
        name: the teammate's.
        first: the arrival of its first byte.
        whole: the arrival of its last byte.
        size: the size of its body in bytes.
    """

    name: str
    first: float
    whole: float
    size: int


class Server:
    """The server in its own process; `PUT` requests set its terms and query its records."""

    def __init__(self) -> None:
        self._terms = Terms()
        self._served: dict[str, tuple[int, float]] = {}
        self._steps: Counter[str] = Counter()  # answered requests of each teammate's current turn
        self._seen: list[Request] = []
        self._news = asyncio.Condition()
        self._last = b""

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it is closed."""
        try:
            while first := await reader.read(1):
                came = time.monotonic()
                head = first + await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                if head.startswith(b"PUT"):
                    writer.write(await self._tell(head.split(b" ", 2)[1].decode(), body))
                elif head.startswith(b"GET"):  # asks for a model's page, which does not exist
                    writer.write(_response("404 Not Found", "application/json", b"{}"))
                else:
                    whole = time.monotonic()
                    name = found[1].decode() if (found := _NAME.search(body)) else ""
                    writer.write(await self._answer(name))
                    self._last = body
                    await self._note(Request(name, came, whole, len(body)))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, name: str) -> bytes:
        if self._terms.seconds:
            await asyncio.sleep(self._terms.seconds)
        self._steps[name] += 1
        times = self._served.get(name, (0, 0.0))[0] + 1
        self._served[name] = (times, time.monotonic())
        return _response("200 OK", "text/event-stream", self._reply(name, times))

    def _reply(self, name: str, number: int) -> bytes:
        terms = self._terms
        if self._steps[name] % terms.calls == 0:
            return _stream({"type": "text", "text": "Done."}, "end_turn")
        # Repeated calls in a turn are answered with errors, and in the end stop the turn.
        given = {key: value.format(number) for key, value in terms.given.items()}
        call_id = f"toolu_{name}{number}"
        call = {"type": "tool_use", "id": call_id, "name": terms.tool, "input": given}
        return _stream(call, "tool_use")

    async def _note(self, request: Request) -> None:
        async with self._news:
            self._seen.append(request)
            self._news.notify_all()

    async def _tell(self, path: str, body: bytes) -> bytes:
        if path == "/last":
            return _response("200 OK", "application/json", self._last)
        told: Any = None
        if path == "/terms":
            self._terms = Terms(**json.loads(body))
            self._steps.clear()
        elif path == "/seen":
            told, self._seen = self._seen, []
        elif path == "/served":
            told = self._served
        else:
            told = await self._first(*json.loads(body))
        return _response("200 OK", "application/json", json.dumps(told).encode())

    async def _first(self, name: str, after: float) -> float:
        """Wait for the first request of a teammate after a moment."""

        def moments() -> list[float]:
            return [one.first for one in self._seen if one.name == name and one.first > after]

        async with self._news:
            return min(await self._news.wait_for(moments))


def _stream(block: dict[str, Any], reason: str) -> bytes:
    message = {
        "id": "msg_bench", "type": "message", "role": "assistant", "model": "bench",
        "content": [block], "stop_reason": reason, "stop_sequence": None, "stop_details": None,
        "usage": _USAGE,
    }  # fmt: skip
    return b"".join(wire.encode(message))


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass(frozen=True, slots=True)
class Imitation:
    """A running server, as seen from its bench.

    Attributes:
        url: its base URL.
    """

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that point a process to this server."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": _KEY}

    def answer(self, **terms: Any) -> None:
        """Set the terms of further answers; each teammate begins a turn with its next request."""
        self._ask("terms", asdict(Terms(**terms)))

    def seen(self) -> list[Request]:
        """Return the requests since the last call."""
        return [Request(*one) for one in self._ask("seen")]

    def served(self) -> dict[str, tuple[int, float]]:
        """Return for each teammate the number of answers and the monotonic time of the last."""
        return dict(self._ask("served"))

    def last(self) -> dict[str, Any]:
        return dict(self._ask("last"))

    def wait_for(self, name: str, *, after: float) -> float:
        """Wait for a request of a teammate after a moment; return when it arrived."""
        return float(self._ask("first", [name, after]))

    def _ask(self, what: str, body: Any = None) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{what}", data=data, method="PUT")
        with urllib.request.urlopen(request, timeout=_LONGEST_SECONDS) as answer:
            return json.load(answer)


@contextmanager
def running(**terms: Any) -> Iterator[Imitation]:
    """Run a server for the length of a block."""
    argv = [sys.executable, "-m", "tests.bench.imitation"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        imitation = Imitation(server.stdout.readline().strip())
        imitation.answer(**terms)
        try:
            yield imitation
        finally:
            server.stdin.close()


async def _main() -> None:
    serve = Server().connected
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_MOST_BYTES, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main())
