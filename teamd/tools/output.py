"""Output that may be too long: clipped for the model, spooled to disk for a job."""

from __future__ import annotations

import codecs
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from teamd.errors import translate_os_errors
from teamd.files.safe_open import safe_open


def clip(data: bytes, limit: int) -> str:
    """Return bytes as text; the middle of a long text is left out."""
    whole = Clip(limit)
    whole.take(data)
    return whole.text()


class Clip:
    """Collects bytes in bounded memory and returns them as text.

    Invalid UTF-8 and NUL become U+FFFD. `limit` bounds the text in bytes of UTF-8, not counting the
    line that tells the size of the cut.
    """

    def __init__(self, limit: int) -> None:
        self._tail_limit = limit // 2
        self._head_limit = limit - self._tail_limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def take(self, chunk: bytes) -> None:
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


class OutputFile:
    """A file for unlimited output: when it is full, its older half is dropped.

    Args:
        path: replaced by a new file.
        limit: its maximum size in bytes.
    """

    def __init__(self, path: Path, limit: int) -> None:
        with translate_os_errors(path):
            self._fd = safe_open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._limit = limit
        self._size = 0

    def take(self, chunk: bytes) -> None:
        """Add a chunk; if it cannot be written it is lost, and the job goes on."""
        chunk = chunk[-self._limit // 2 :]
        if self._size + len(chunk) > self._limit:
            self._halve()
        with suppress(OSError):
            self._size += os.pwrite(self._fd, chunk, self._size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def _halve(self) -> None:
        kept = os.pread(self._fd, self._limit // 2, self._size - self._limit // 2)
        kept = kept[kept.find(b"\n") + 1 :]  # from the start of a line
        os.pwrite(self._fd, kept, 0)
        os.ftruncate(self._fd, len(kept))
        self._size = len(kept)
