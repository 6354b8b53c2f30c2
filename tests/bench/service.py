"""A model's service that costs little: it answers every request alike after a while.

It runs as a process of its own, so that what it computes is told apart from what is measured. It
counts how often each teammate has asked, and refuses with 429 what is more at once than it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = re.compile(rb"You are '([^']*)'")
_USAGE = {"input_tokens": 1, "output_tokens": 1}


def _stream(reason: str, block: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    start = {"id": "m", "type": "message", "role": "assistant", "model": "none", "content": []}
    events: tuple[dict[str, Any], ...] = (
        {"type": "message_start", "message": {**start, "usage": _USAGE}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": one} for one in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()


def _reply(times: int, calls: int) -> bytes:
    """Use a tool, until that many calls make a turn."""
    if times % calls == 0:
        said = {"type": "text_delta", "text": "Done."}
        return _stream("end_turn", {"type": "text", "text": ""}, said)
    used = {"type": "tool_use", "id": f"toolu_{times}", "name": "task_list", "input": {}}
    return _stream("tool_use", used, {"type": "input_json_delta", "partial_json": "{}"})


_BUSY = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": "busy"}})


@dataclass(slots=True)
class Counts:
    """What has been asked so far.

    Attributes:
        served: how often each teammate was answered, and when last, by the monotonic clock.
        refused: requests that were one too many.
        inside: requests that are under way.
        most: the most that were at once.
    """

    served: dict[str, tuple[int, float]] = field(default_factory=dict)
    refused: int = 0
    inside: int = 0
    most: int = 0


class Service:
    """Answers after so many seconds, at most so many requests at once."""

    def __init__(self, seconds: float, room: int, calls: int, retry_after: str) -> None:
        self._seconds = seconds
        self._calls = calls
        self._room = room
        self._later = f"retry-after: {retry_after}\r\n" if retry_after else ""
        self._counts = Counts()

    async def serve(self) -> None:
        """Serve until killed; the port is printed."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=4096)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(found[1]) if found else 0)
                writer.write(await self._answer(head, body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, head: bytes, body: bytes) -> bytes:
        counts = self._counts
        if head.startswith(b"GET"):
            return _response("200 OK", "application/json", json.dumps(asdict(counts)).encode())
        if counts.inside >= self._room:
            counts.refused += 1
            kind = f"application/json\r\n{self._later}".rstrip()
            return _response("429 Too Many Requests", kind, _BUSY.encode())
        counts.inside += 1
        counts.most = max(counts.most, counts.inside)
        await asyncio.sleep(self._seconds)
        counts.inside -= 1
        name = found[1].decode() if (found := _NAME.search(body)) else ""
        times, _ = counts.served.get(name, (0, 0.0))
        counts.served[name] = (times + 1, time.monotonic())
        reply = _reply(times + 1, self._calls)
        return _response("200 OK", "text/event-stream", reply)


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass(frozen=True, slots=True)
class Running:
    """A service that runs.

    Attributes:
        url: its base URL.
    """

    url: str

    def counts(self) -> Counts:
        """Ask it what it has counted."""
        with urllib.request.urlopen(self.url) as answer:
            return Counts(**json.load(answer))


@contextmanager
def running(
    *, seconds: float, room: int = 1_000_000, calls: int = 1, retry_after: str = ""
) -> Iterator[Running]:
    """Run a service for the length of a block.

    Args:
        seconds: how long each answer takes.
        room: how many requests it answers at once.
        calls: how many make a turn.
        retry_after: what it says where it refuses; nothing where it is empty.
    """
    figures = map(str, (seconds, room, calls))
    argv = [sys.executable, "-m", __name__, *figures, retry_after]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Running(f"http://127.0.0.1:{process.stdout.readline().strip()}")
        finally:
            process.kill()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("seconds", type=float)
    arguments.add_argument("room", type=int)
    arguments.add_argument("calls", type=int)
    arguments.add_argument("retry_after")
    given = arguments.parse_args()
    asyncio.run(Service(given.seconds, given.room, given.calls, given.retry_after).serve())
