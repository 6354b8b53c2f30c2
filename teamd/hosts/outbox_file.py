"""The file format of an outbox: its header, its lines, and finding its end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from teamd.errors import StoreError
from teamd.hosts.cursor import is_chain, is_number
from teamd.hosts.lines import MAX_LINE_BYTES, START, OutLine, read_run
from teamd.messages import is_tag

_TAIL: Final = 1 << 12  # read twice at each append, and longer than most lines
_CHUNK: Final = 1 << 16
FRAME_BYTES: Final = 1 << 16  # a single line may be longer
_LONGEST: Final = MAX_LINE_BYTES + 100  # including number and chain


class DamagedOutbox(StoreError):
    """A foreign program has written into an outbox; `why` describes the damage."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a file in .team/hosts/outbox is damaged ({why}); move it out of there")


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of an outbox.

    Attributes:
        epoch: the random id of this sequence of numbers.
        first: the number of the next line.
        chain: the chain of the line before that.
        former: the epoch from which the first lines were copied, if any.
        copied: the number of the last copied line; the other host may have some of them.
    """

    epoch: str
    first: int = 1
    chain: str = START
    former: str | None = None
    copied: int = 0

    @classmethod
    def new(cls, former: str | None = None, copied: int = 0) -> Header:
        return cls(os.urandom(8).hex(), former=former, copied=copied)

    def to_json(self) -> dict[str, Any]:
        """Return the header as used in files and frames."""
        return asdict(self)

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, raw: bytes) -> Header | None:
        """Decode a header; `None` if it is invalid."""
        return _decode_header(raw)

    @classmethod
    def from_json(cls, found: Any) -> Header | None:
        """Decode a header from a frame or a file; `None` if it is invalid."""
        match found:
            case {
                "epoch": epoch, "first": first, "chain": chain,
                "former": former, "copied": copied,
            }:  # fmt: skip
                tags = is_tag(epoch) and (former is None or is_tag(former))
                numbers = is_number(first) and is_number(copied) and first >= 1
                if tags and numbers and is_chain(chain):
                    return cls(epoch, first, chain, former, copied)
        return None


@lru_cache(maxsize=64)  # the same at each append
def _decode_header(raw: bytes) -> Header | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return Header.from_json(found)


@dataclass(frozen=True, slots=True)
class End:
    """The end of an outbox: its header, the last line's number and chain, and its size."""

    header: Header
    n: int
    chain: str
    size: int


class LineEnd(NamedTuple):  # fast to create, for large backlogs
    """The end of a line: its number and chain, and the file size up to it."""

    n: int
    chain: str
    end: int


def whole_size(fd: int) -> int:
    """Return the size of a file up to its last newline."""
    end = os.fstat(fd).st_size
    while end:
        start = max(0, end - _TAIL)
        if (found := os.pread(fd, end - start, start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0


def find_end(fd: int, size: int) -> End | None:
    """Return the end of an outbox of `size` bytes, all in whole lines; `None` if it is empty.

    Raises:
        StoreError: the file is damaged.
    """
    if not size:
        return None
    header = read_header(fd)
    if header is None:
        raise DamagedOutbox("its first line was not written by teamd")
    start, length, last = size, _TAIL, b""
    while start and last.count(b"\n", 0, -1) < 1:
        start = max(0, size - length)
        last, length = os.pread(fd, size - start, start), 4 * length
    raw = last[last.rfind(b"\n", 0, -1) + 1 :]
    if size == len(raw):
        return End(header, header.first - 1, header.chain, size)
    line = OutLine.decode(raw)
    if line is None:
        raise DamagedOutbox("its last line was not written by teamd")
    return End(header, line.n, line.chain, size)


def read_header(fd: int) -> Header | None:
    """Return the first line of an outbox; `None` if it is missing or invalid."""
    return Header.decode(os.pread(fd, 1024, 0).partition(b"\n")[0])


def read_raw(fd: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes between two offsets, in chunks."""
    while start < end and (part := os.pread(fd, min(_CHUNK, end - start), start)):
        yield part
        start += len(part)


def read_lines(fd: int, start: int, end: int) -> Iterator[OutLine]:
    """Yield the lines between two offsets.

    Raises:
        StoreError: a line is invalid.
    """
    rest = b""
    for part in read_raw(fd, start, end):
        *whole, rest = (rest + part).split(b"\n")
        for raw in whole:
            line = OutLine.decode(raw + b"\n")
            if line is None:
                raise DamagedOutbox("a line was not written by teamd")
            yield line


def read_frame(fd: int, start: LineEnd, end: int, most: int) -> list[OutLine]:
    """Return the lines for one frame: at most `most`, and at least one.

    Raises:
        DamagedOutbox: the next line is invalid.
    """
    content = os.pread(fd, min(FRAME_BYTES, end - start.end), start.end)
    lines = read_run(content, start.n, start.chain, most)
    if not lines:  # a long line
        content = os.pread(fd, min(_LONGEST, end - start.end), start.end)
        lines = read_run(content, start.n, start.chain, 1)
    if not lines or len(lines[0].body) > MAX_LINE_BYTES:  # hosts do not accept it
        raise DamagedOutbox(f"line {start.n + 1} was not written by teamd")
    return lines
