"""A Messages API server that only looks when the first byte of a request is on the wire."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME: Final = re.compile(rb"You are '([^']*)'")
_LENGTH: Final = re.compile(rb"(?i)content-length: (\d+)")
_EVENTS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
        "model": "bench", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)  # fmt: skip
_BODY: Final = b"".join(
    b"event: %s\ndata: %s\n\n" % (event["type"].encode(), json.dumps(event).encode())
    for event in _EVENTS
)
_REPLY: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s"
    % (len(_BODY), _BODY)
)


class Wire:
    """Answers every request with the same words.

    Attributes:
        seen: when the first byte of each request came, and whose it was.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.seen: list[tuple[str, float]] = []
        self._more = threading.Condition()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process finds this server."""
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "bench-key"}

    def count(self) -> int:
        """Return how many requests have come."""
        return len(self.seen)

    def wait_for(self, name: str, *, after: float, seconds: float = 60.0) -> float:
        """Wait for a request of a teammate that came after a moment; return when it came."""
        with self._more:
            found = self._more.wait_for(lambda: self._moments(name, after), seconds)
        assert found, f"no request of {name} within {seconds:g} s"
        return min(found)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def serve(self) -> None:
        """Serve until it is closed, each connection in a thread of its own."""
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _moments(self, name: str, after: float) -> list[float]:
        return [moment for who, moment in self.seen if who == name and moment > after]

    def _converse(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, suppress(OSError):
            while data := connection.recv(1 << 20):
                moment = time.monotonic()
                while not _whole(data):
                    data += connection.recv(1 << 20)
                name = _NAME.search(data)
                with self._more:
                    self.seen.append((name[1].decode() if name else "", moment))
                    self._more.notify_all()
                connection.sendall(_REPLY)


def _whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return bool(end) and (length is None or len(body) >= int(length[1]))


@contextmanager
def served() -> Iterator[Wire]:
    """Serve for the length of a block."""
    wire = Wire()
    thread = threading.Thread(target=wire.serve)
    thread.start()
    try:
        yield wire
    finally:
        wire.close()
        thread.join()
