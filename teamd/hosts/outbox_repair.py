"""Sorts a damaged outbox: what is ours, in its order, and how much is none of ours."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from teamd.errors import NotAMessage
from teamd.files import directories
from teamd.files.files import DAMAGED
from teamd.hosts.lines import MAX_LINE_BYTES, OutLine
from teamd.hosts.outbox_file import Header


@dataclass(frozen=True, slots=True)
class Sorted:
    """What a damaged outbox holds.

    Attributes:
        header: its first line, if that is one.
        lines: those that are ours.
        strange: how many are not.
    """

    header: Header | None
    lines: list[OutLine]
    strange: int


def sort_lines(content: bytes) -> Sorted:
    """Sort the lines of an outbox.

    A line whose digest does not fit the line before it was changed, or something is gone before it:
    which of both cannot be known, so it is none of ours. The one behind it may be.
    """
    raw = [line + b"\n" for line in content.split(b"\n")[:-1]]
    header = Header.decode(raw[0]) if raw else None
    n, chain = (0, None) if header is None else (header.first - 1, header.chain)
    kept, strange = [], 0
    for one in raw if header is None else raw[1:]:
        line = OutLine.decode(one)
        if line is None or not _is_sound(line) or not (chain is None or line.follows(n, chain)):
            strange += 1
        else:
            kept.append(line)
        n, chain = (0, None) if line is None else (line.n, line.chain)
    return Sorted(header, kept, strange)


def name_aside(path: Path) -> Path:
    """Return where a damaged outbox is kept."""
    return path.with_name(f"{path.stem}{DAMAGED}{time.time_ns()}")


def find_aside(path: Path) -> list[Path]:
    """Return the damaged files that were kept of an outbox."""
    return sorted(directories.list_files(path.parent, f"{path.stem}{DAMAGED}*"))


def _is_sound(line: OutLine) -> bool:
    try:
        line.fields()
    except NotAMessage:
        return False
    return len(line.body) <= MAX_LINE_BYTES
