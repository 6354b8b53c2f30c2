"""Read the lines of long files in chunks, from any offset, and search them from the end.

The text after the last newline counts as a line, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from teamd.files import files

_CHUNK: Final = 1 << 20


def read_lines(path: Path, start: int = 0) -> Iterator[bytes]:
    """Yield the lines of a file without their newlines; nothing if the file does not exist.

    Args:
        path: the file.
        start: the offset of the first line.
    """
    with files.opened(path) as fd:
        if fd is None:
            return
        offset, rest = start, b""
        while part := os.pread(fd, _CHUNK, offset):
            offset += len(part)
            *whole, rest = (rest + part).split(b"\n")
            yield from whole
        yield rest


def find_lines(path: Path, beginning: bytes) -> Iterator[int]:
    """Yield the offsets of lines that start with `beginning`, from the last line to the second."""
    wanted = b"\n" + beginning
    with files.opened(path) as fd:
        start, part = 0 if fd is None else os.fstat(fd).st_size, b""
        while fd is not None and start:
            size = min(_CHUNK, start)
            start -= size
            # A match may start in this chunk and end in the next one.
            part = os.pread(fd, size, start) + part[: len(wanted) - 1]
            place = len(part)
            while (place := part.rfind(wanted, 0, place)) >= 0:
                yield start + place + 1
