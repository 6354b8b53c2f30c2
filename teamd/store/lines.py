"""The lines of an inbox: messages, markers of what was taken, and what is neither."""

from __future__ import annotations

import io
import os
import re
from typing import TYPE_CHECKING, Final

from teamd.errors import NotAMessage
from teamd.protocol import MAX_MESSAGE_BYTES, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARKER: Final = re.compile(rb'{"taken_as": "([^"\\]*)"}\s*')  # alone: a message may have any key
_FAR_LONGER: Final = 64


def marker(batch: str) -> bytes:
    """The line that tells that all above it was taken as this batch."""
    return f'{{"taken_as": "{batch}"}}\n'.encode()


def read(fd: int, start: int, max_bytes: int = MAX_MESSAGE_BYTES) -> Iterator[bytes]:
    """The lines of a locked file from an offset on, up to its size of now.

    Only a newline ends a line. One that is somewhat longer than a message may be comes whole;
    one that is far longer comes in pieces, so that nobody can fill the memory with it.
    """
    end = os.fstat(fd).st_size
    with io.FileIO(fd, closefd=False) as raw, io.BufferedReader(raw, 1 << 18) as file:
        file.seek(start)
        while file.tell() < end and (line := file.readline(_FAR_LONGER * max_bytes)):
            yield line


def behind_marker(fd: int, batch: str) -> int | None:
    """The offset behind the marker of a batch, or `None` where it does not stand."""
    offset = 0
    for line in read(fd, 0):
        offset += len(line)
        found = _MARKER.fullmatch(line)
        if found and found[1] == batch.encode():
            return offset
    return None


def sort(line: bytes, *, to: str, max_bytes: int) -> Message | str | None:
    """A message, why it is none, or `None` for blank lines and markers, which are neither."""
    if not line.strip() or _MARKER.fullmatch(line):
        return None
    if len(line) > max_bytes:
        return f"it is longer than {max_bytes} bytes"
    try:
        return Message.decode(line, to=to)
    except NotAMessage as error:
        return str(error)
