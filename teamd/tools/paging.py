"""A text file by pages: reads lines as the model sees them, in bounded memory and time."""

from __future__ import annotations

import asyncio
import codecs
from dataclasses import dataclass
from typing import BinaryIO, Final

_CHUNK: Final = 1 << 20  # read between two looks at the rest of the loop
_LINE_COST: Final = 64  # what a line costs in time, counted as if bytes
_LONGEST_CHARACTER: Final = 4
_PROBE: Final = 8192  # where a NUL tells a binary file
_COUNTED_BYTES: Final = 256 << 20  # further than this the lines that follow are not counted


class NotText(ValueError):
    """The file holds a NUL, or what is not UTF-8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some lines of a file.

    Attributes:
        text: the lines, numbered as by `cat -n`; empty if there is none from `offset` on.
        end: the number of the last line shown, or of the file's last line if none is.
        more: how many lines follow; `None` if too much follows to be counted.
        cut: if the one line shown was too long: how many bytes are shown, and how many it has.
        crlf: whether lines end in CR LF; the CR is not shown.
    """

    text: str
    end: int
    more: int | None
    cut: tuple[int, int] | None
    crlf: bool


async def read_page(file: BinaryIO, *, offset: int, limit: int, room: int) -> Page:
    """Read `limit` lines from line `offset` on, or as many as fit into `room` bytes.

    One line at least is shown, cut if need be.

    Raises:
        NotText: what is shown is no text.
    """
    if b"\0" in file.read(_PROBE):
        raise NotText
    file.seek(0)
    lines = _Lines(file)
    for number in range(1, offset):
        if not (await lines.next(_CHUNK))[1]:
            return Page(text="", end=number - 1, more=0, cut=None, crlf=False)
    shown: list[str] = []
    end, crlf = offset - 1, False
    while end < offset - 1 + limit:
        prefix = f"{end + 1:6}\t"
        budget = room - len(prefix) if shown else max(room - len(prefix), _LONGEST_CHARACTER)
        start = file.tell()
        data, size = await lines.next(max(budget, 0) + 1)
        fits = len(data) == size and len(data.removesuffix(b"\n")) <= budget
        if not size or (shown and not fits):
            file.seek(start)
            break
        text = _decode(data if fits else data[:budget], whole=fits)
        shown.append(prefix + text)
        end += 1
        if not fits:
            cut = (len(text.encode()), size)
            return Page(text=shown[0], end=end, more=await lines.count(), cut=cut, crlf=False)
        crlf |= data.endswith(b"\r\n")
        room -= len(prefix) + size
    return Page(text="\n".join(shown), end=end, more=await lines.count(), cut=None, crlf=crlf)


class _Lines:
    """A file's lines one by one; lets the loop run after every MiB."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._since_pause = 0

    async def next(self, keep: int) -> tuple[bytes, int]:
        """The next line's first `keep` bytes and its size, newline counted; 0 at the end."""
        data = part = self._file.readline(keep)
        size = len(data)
        while part and not part.endswith(b"\n"):
            await self._pause(len(part))
            part = self._file.readline(_CHUNK)
            size += len(part)
        await self._pause(len(part))
        return data, size

    async def count(self) -> int | None:
        """Count the lines that follow; `None` where that takes longer than a moment."""
        count = size = 0
        chunk = last = b""
        while chunk := self._file.read(_CHUNK):
            count += chunk.count(b"\n")
            size += len(chunk)
            if size > _COUNTED_BYTES:
                return None
            last = chunk
            await self._pause(len(chunk))
        return count + (bool(last) and not last.endswith(b"\n"))

    async def _pause(self, size: int) -> None:
        self._since_pause += size + _LINE_COST
        if self._since_pause > _CHUNK:
            self._since_pause = 0
            await asyncio.sleep(0)


def _decode(data: bytes, *, whole: bool) -> str:
    """The line as text without its end; what is not whole may end in half a character."""
    if b"\0" in data:
        raise NotText
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError as error:
        raise NotText from error
    return text.removesuffix("\n").removesuffix("\r") if whole else text
