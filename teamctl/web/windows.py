"""Windows of long files: the last lines, those before or after an offset, or since a moment."""

from __future__ import annotations

import math
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from teamctl.tail import GrowingFile, lines_back, start_after
from teamctl.transcripts import moment_of
from teamd.files import files
from teamd.transcript.file import is_checkpoint, parse
from teamd.transcript.records import Checkpoint

WINDOW: Final = 1 << 18  # bytes
_BEFORE: Final = 1 << 14  # bytes of the conversation before a moment
_HIDDEN: Final = frozenset({"secret"})  # the secret from which request ids are derived
LONGEST: Final = 20_000  # characters of one text


@dataclass(frozen=True, slots=True)
class LineWindow:
    """Whole lines, with the offsets of their beginning and end."""

    start: int
    end: int
    lines: tuple[bytes, ...]


def read_before(path: Path, end: int | None, *, size: int = WINDOW) -> LineWindow:
    """Return the last lines before an offset, or of the file."""
    lines: deque[bytes] = deque()
    start = stop = 0
    for place, line in lines_back(path, math.inf if end is None else end):
        stop = stop or place + len(line) + 1
        if lines and stop - place > size:
            break
        start = place
        lines.appendleft(line)
    return LineWindow(start, stop, tuple(lines))


def read_behind(path: Path, start: int, *, size: int = WINDOW) -> LineWindow:
    """Return the first lines after an offset; if the file has shrunk, return its end."""
    if files.size(path) < start:
        return read_before(path, None)
    lines: list[bytes] = []
    end = start
    with closing(GrowingFile(path, start)) as growing:
        for line in growing.lines():
            lines.append(line)
            end += len(line) + 1
            if end - start >= size:
                break
    return LineWindow(start, end, tuple(lines))


def read_at(path: Path, moment: float, *, size: int = WINDOW) -> LineWindow:
    """Return the lines of a conversation since a moment, and a few before it."""

    def before(_: int, line: bytes) -> bool:
        found = {} if is_checkpoint(line) else parse(line) or {}
        return 0 < moment_of(found) < moment

    place = start_after(path, before)
    earlier, later = read_before(path, place, size=_BEFORE), read_behind(path, place, size=size)
    start = earlier.start if earlier.lines else later.start
    return LineWindow(start, later.end, (*earlier.lines, *later.lines))


def to_json(window: LineWindow) -> dict[str, Any]:
    """Return a window as JSON, with long texts cut."""
    found = (parse(line) for line in window.lines)
    shown = [
        {key: _cut(value) for key, value in one.items() if key not in _HIDDEN}
        for one in found
        if one and one.get("record") != Checkpoint.kind
    ]
    return {"start": window.start, "end": window.end, "records": shown}


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
