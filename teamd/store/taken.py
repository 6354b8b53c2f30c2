"""What a reader took from its inbox and has not put in its place yet: a queue with a position.

The file's first line is a header of fixed width, `{"batch": ID, "at": OFFSET, "tries": COUNT}`;
the messages follow, a line each, their ids fixed. `at` is where the next delivery begins: it is
moved in place once a delivery stands where it belongs. `tries` counts the readers that have ended
since it was moved.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teamd.errors import NotAMessage, StoreError
from teamd.protocol import Message
from teamd.store import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

_HEADER: Final = re.compile(rb'{"batch": "([^"\\]*)", "at": "(\d{15})", "tries": "(\d{3})"}\n')
_MOST_TRIES: Final = 999
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a batch's next delivery begins.

    Attributes:
        at: an offset into the file.
        tries: how many readers have ended since that was moved.
    """

    batch: str
    at: int
    tries: int = 0

    def header(self) -> bytes:
        """The file's first line."""
        tries = min(self.tries, _MOST_TRIES)
        return (
            f'{{"batch": "{self.batch}", "at": "{self.at:015}", "tries": "{tries:03}"}}\n'.encode()
        )


def first_position(batch: str) -> Position:
    """The position of a batch of which nothing has been delivered."""
    return Position(batch=batch, at=len(Position(batch=batch, at=0).header()))


class Taken:
    """One reader's file of taken mail; its inbox's lock guards it."""

    def __init__(self, path: Path, owner: str) -> None:
        self.path = path
        self._owner = owner

    def position(self) -> Position | None:
        """Where to go on, `None` where there is no such file."""
        with self._opened() as file:
            return None if file is None else self._header(file)

    def messages(
        self, *, most: int | None = None, most_bytes: int | None = None
    ) -> tuple[tuple[Message, ...], int]:
        """The messages from the position on, and the offset behind the last of them.

        One at least, however long it is.
        """
        found: list[Message] = []
        with self._opened() as file:
            if file is None:
                return (), 0
            start = end = self._header(file).at
            file.seek(start)
            for line in file:
                over = most_bytes is not None and end - start + len(line) > most_bytes
                if found and (over or len(found) == most):
                    break
                found.append(self._message(line))
                end += len(line)
        return tuple(found), end

    def rest(self) -> Iterator[bytes]:
        """The lines from the position on, as they stand."""
        with self._opened() as file:
            if file is not None:
                file.seek(self._header(file).at)
                while part := file.read(_CHUNK):
                    yield part

    def move(self, position: Position) -> None:
        """Move the position in place, or remove the file when nothing is left behind it."""
        with files.told(self.path):
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if position.at < os.fstat(fd).st_size:
                    os.pwrite(fd, position.header(), 0)
                    return
            finally:
                os.close(fd)
        files.remove(self.path)

    @contextmanager
    def _opened(self) -> Iterator[BufferedReader | None]:
        with files.told(self.path):
            try:
                file = self.path.open("rb")
            except FileNotFoundError:
                yield None
                return
            with file:
                yield file

    def _header(self, file: BufferedReader) -> Position:
        found = _HEADER.fullmatch(file.readline(_CHUNK))
        if found is None:
            raise self._damaged()
        return Position(batch=found[1].decode(), at=int(found[2]), tries=int(found[3]))

    def _message(self, line: bytes) -> Message:
        try:
            return Message.decode(line, to=self._owner)
        except NotAMessage as error:
            raise self._damaged() from error

    def _damaged(self) -> StoreError:
        return StoreError(f"{self.path} is damaged; move it away and look in it for lost mail")
