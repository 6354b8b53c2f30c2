"""A few lines out of a long file: its end, what stands before them, and what came behind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from teamd.errors import translate_os_errors
from teamd.files.safe_open import safe_open
from teamd.transcript.file import parse
from teamd.transcript.records import Checkpoint

WINDOW: Final = 1 << 18
_WIDEST: Final = 1 << 26  # a single line of more is not shown
_HIDDEN: Final = frozenset({"secret"})  # of a conversation: ids of requests follow from it
LONGEST: Final = 20_000  # characters of one text


@dataclass(frozen=True, slots=True)
class LineWindow:
    """Whole lines, and the offsets between which they stand."""

    start: int
    end: int
    lines: tuple[bytes, ...]


def read_before(path: Path, end: int | None, *, size: int = WINDOW) -> LineWindow:
    """Return the last lines before an offset, or those at the end of the file."""
    with translate_os_errors(path):
        fd = safe_open(path, os.O_RDONLY)
        try:
            full = os.fstat(fd).st_size
            stop = full if end is None else min(end, full)
            while True:
                start = max(0, stop - size)
                content = os.pread(fd, stop - start, start)
                head = 0 if start == 0 else content.find(b"\n") + 1
                tail = content.rfind(b"\n") + 1  # what is torn is still being written
                if tail > head or start == 0 or size >= _WIDEST:
                    break
                size *= 4
        finally:
            os.close(fd)
    return _window(content[head : max(head, tail)], start + head)


def read_behind(path: Path, start: int, *, size: int = WINDOW) -> LineWindow:
    """Return the first lines behind an offset; the end of a file that is shorter by now."""
    with translate_os_errors(path):
        fd = safe_open(path, os.O_RDONLY)
        try:
            full = os.fstat(fd).st_size
            if full < start:
                return read_before(path, None)
            while True:
                content = os.pread(fd, size, start)
                tail = content.rfind(b"\n") + 1
                if tail or len(content) < size or size >= _WIDEST:
                    break
                size *= 4
        finally:
            os.close(fd)
    return _window(content[:tail], start)


def to_json(window: LineWindow) -> dict[str, Any]:
    """Return a window as pages get it: objects as they stand there, long texts cut."""
    found = (parse(line) for line in window.lines)
    shown = [
        {key: _cut(value) for key, value in one.items() if key not in _HIDDEN}
        for one in found
        if one and one.get("record") != Checkpoint.kind
    ]
    return {"start": window.start, "end": window.end, "records": shown}


def _window(content: bytes, start: int) -> LineWindow:
    lines = tuple(content.split(b"\n")[:-1])
    return LineWindow(start, start + len(content), lines)


def _cut(value: Any) -> Any:
    match value:
        case str() if len(value) > LONGEST:
            return f"{value[:LONGEST]}… ({len(value) - LONGEST} more characters)"
        case list():
            return [_cut(one) for one in value]
        case dict():
            return {key: _cut(one) for key, one in value.items()}
        case _:
            return value
