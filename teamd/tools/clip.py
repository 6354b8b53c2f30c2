"""An output too long for the model: its head and its tail are kept, the middle is counted."""

from __future__ import annotations

import codecs


class Clip:
    """Collects bytes in bounded memory and gives them as text.

    What is not UTF-8, and NUL, becomes U+FFFD. `limit` bounds the text in bytes of UTF-8; the
    line that tells what was cut comes on top.
    """

    def __init__(self, limit: int) -> None:
        self._tail_limit = limit // 2
        self._head_limit = limit - self._tail_limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def take(self, chunk: bytes) -> None:
        """Add what came."""
        self._keep(self._decoder.decode(chunk))

    def text(self) -> str:
        """Return all of it, or head and tail with a line between that says how much was cut."""
        self._keep(self._decoder.decode(b"", final=True))
        # Where all fits, the cut between head and tail may go through a character.
        if self._size <= len(self._head) + len(self._tail):
            return (self._head + self._tail).decode()
        head = self._head.decode(errors="ignore")
        tail = self._tail.decode(errors="ignore")
        cut = self._size - len(head.encode()) - len(tail.encode())
        return f"{head}\n[… {cut} bytes cut …]\n{tail}"

    def _keep(self, text: str) -> None:
        data = text.replace("\0", "\ufffd").encode()
        self._size += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[: -self._tail_limit or len(self._tail)]
