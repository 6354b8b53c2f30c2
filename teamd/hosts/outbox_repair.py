"""Sort a damaged outbox: valid lines in order, and the number of invalid ones."""

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
    """The content of a damaged outbox.

    Attributes:
        header: its first line, if valid.
        lines: the valid lines.
        strange: the number of invalid lines.
    """

    header: Header | None
    lines: list[OutLine]
    strange: int


def sort_lines(content: bytes) -> Sorted:
    """Sort the lines of an outbox.

    If a line's digest does not match the line before it, either the line was changed or lines
    before it are missing. That cannot be distinguished, so the line counts as invalid. The next
    line may still be valid.
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
    """Return the path for a copy of a damaged outbox."""
    return path.with_name(f"{path.stem}{DAMAGED}{time.time_ns()}")


def find_aside(path: Path) -> list[Path]:
    """Return the kept copies of a damaged outbox."""
    return sorted(directories.list_files(path.parent, f"{path.stem}{DAMAGED}*"))


def _is_sound(line: OutLine) -> bool:
    try:
        line.fields()
    except NotAMessage:
        return False
    return len(line.body) <= MAX_LINE_BYTES
