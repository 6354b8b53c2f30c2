"""Lines of files that may be long: read a part at a time, from anywhere on, and found from the end.

What stands behind the last newline is a line as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from teamd.files import files

_CHUNK: Final = 1 << 20


def read_lines(path: Path, start: int = 0) -> Iterator[bytes]:
    """Yield the lines of a file without their ends; none where there is no file.

    Args:
        path: the file.
        start: where the first of them begins.
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
    """Yield where lines of a file begin that begin so, from the last to the second."""
    wanted = b"\n" + beginning
    with files.opened(path) as fd:
        start, part = 0 if fd is None else os.fstat(fd).st_size, b""
        while fd is not None and start:
            size = min(_CHUNK, start)
            start -= size
            # What begins in this part may end in the one behind it.
            part = os.pread(fd, size, start) + part[: len(wanted) - 1]
            place = len(part)
            while (place := part.rfind(wanted, 0, place)) >= 0:
                yield start + place + 1
