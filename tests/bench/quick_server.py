"""A Messages API server that does next to nothing, so that what is measured is not the server.

It answers from bytes made before, in one write, without Nagle's delay; it reads of a request no
more than its length. Run as a program it serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tests.strict import sse

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"request-id: req_bench\r\ncontent-length: %d\r\n\r\n"
)
_END: Final = "go on"  # in the last words of a request: no call is left to be asked for


def reply(content: list[dict[str, Any]], stop_reason: str) -> bytes:
    """Return a whole response."""
    message = {
        "id": "msg_bench", "type": "message", "role": "assistant", "model": "bench",
        "content": content, "stop_reason": stop_reason, "stop_sequence": None,
        "stop_details": None,
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 0,
                  "cache_read_input_tokens": 0, "output_tokens": 5},
    }  # fmt: skip
    body = b"".join(sse.encode(message))
    return _HEAD % len(body) + body


class Server:
    """Answers each request with the next of its replies, and writes down when requests came.

    A connection says by `GET /next/TOOL/INPUT/COUNT` what follows: so many calls of a tool, and
    then an end; `GET /times` tells when whole requests were there and when they were answered.
    """

    def __init__(self) -> None:
        self.left = 0
        self.call: tuple[str, dict[str, Any]] = ("", {})
        self.times: list[tuple[float, float, int]] = []
        self.number = 0
        self.last = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it is closed."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = _length(head)
                body = await reader.readexactly(length)
                came = time.monotonic()
                method, path = head.split(b" ", 2)[:2]
                writer.write(
                    self._told(path.decode(), body) if method == b"PUT" else self._answer()
                )
                if method == b"POST":
                    self.last = body
                    self.times.append((came, time.monotonic(), length))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self) -> bytes:
        if not self.left:
            return reply([{"type": "text", "text": "Done."}], "end_turn")
        self.left -= 1
        self.number += 1
        name, given = self.call
        block = {"type": "tool_use", "id": f"toolu_{self.number:08}", "name": name, "input": given}
        return reply([block], "tool_use")

    def _told(self, path: str, body: bytes) -> bytes:
        if path == "/next":
            name, given, self.left = json.loads(body)
            self.call = (name, given)
            answer = b"{}"
        elif path == "/last":
            answer = self.last
        else:
            answer = json.dumps(self.times).encode()
            self.times.clear()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


@contextmanager
def running() -> Iterator[str]:
    """Run one in a process of its own; yields its base URL."""
    argv = [sys.executable, "-m", "tests.bench.quick_server"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield server.stdout.readline().strip()
        assert server.stdin
        server.stdin.close()


async def _main() -> None:
    server = await asyncio.start_server(Server().serve, "127.0.0.1", 0, limit=1 << 26)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main())
