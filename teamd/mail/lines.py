"""The lines of an inbox: messages, batch markers, and other lines such as torn ones.

Lines that are not messages are kept unchanged in a file of rejected lines.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from teamd.errors import NotAMessage, translate_os_errors
from teamd.files import directories, files, locks
from teamd.messages import MAX_MESSAGE_BYTES, Message, moment_of, new_id

# Matches whole lines only, because a message may have any key.
_MARKER: Final = re.compile(rb'{"taken_as": "([^"\\]*)"}\s*')
_LONGEST_NAME: Final = 64  # a longer name is not a marker's
# A marker between two newlines. The second newline is not consumed: another marker may follow it.
_NAMING_MARKER: Final = re.compile(rb'\n{"taken_as": "([\w.-]{1,%d})"}(?=\n)' % _LONGEST_NAME)
_LONGEST_MARKER: Final = len(b'\n{"taken_as": ""}\n') + _LONGEST_NAME
_MARKERS_FIRST: Final = re.compile(rb'(?:{"taken_as": "[^"\\\n]*"}\n)*')
_AHEAD: Final = 1 << 10  # bytes in which consecutive markers are searched
_FAR_LONGER: Final = 64
_MOST_REASONS: Final = 3
_MOST_EXPLAINED: Final = 100  # lines; screens that show the reasons are redrawn often
_CHUNK: Final = 1 << 20


def marker(batch: str) -> bytes:
    """Return the line after a batch, by which lines without an id are named; see `Names`."""
    return f'{{"taken_as": "{batch}"}}\n'.encode()


def read(fd: int, start: int, max_bytes: int = MAX_MESSAGE_BYTES, end: int = 0) -> Iterator[bytes]:
    """Yield the lines of a locked file between two offsets; by default up to its current size.

    Only a newline ends a line. A line somewhat longer than `max_bytes` is yielded whole; a far
    longer one in pieces, so that it cannot fill the memory.
    """
    end = end or os.fstat(fd).st_size
    if start >= end:
        return
    buffer = min(max(end - start, 1 << 10), 1 << 18)
    with io.FileIO(fd, closefd=False) as raw, io.BufferedReader(raw, buffer) as file:
        file.seek(start)
        while start < end and (line := file.readline(_FAR_LONGER * max_bytes)):
            yield line
            start += len(line)


def read_raw(fd: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file between two offsets, in chunks."""
    while start < end and (part := os.pread(fd, min(_CHUNK, end - start), start)):
        yield part
        start += len(part)


def parts(content: bytes, start: int) -> Iterator[bytes]:
    """Yield content from an offset on, in chunks, so that a search need not copy all of it."""
    return (content[at : at + _CHUNK] for at in range(start, len(content), _CHUNK))


class Digest:
    """The digest of a file from its start to an offset, updated incrementally."""

    def __init__(self) -> None:
        self._found = hashlib.blake2b(digest_size=16)
        self._end = 0

    def up_to(self, fd: int, end: int) -> str:
        """Return the digest up to an offset, which must not decrease; the file may only grow."""
        while self._end < end and (part := os.pread(fd, min(_CHUNK, end - self._end), self._end)):
            self._found.update(part)
            self._end += len(part)
        return self._found.hexdigest()


def count(path: Path, start: int = 0) -> int:
    """Count the lines that end after an offset, without markers; 0 if the file does not exist."""
    found, held = 0, b"\n"  # a marker may be split between two chunks
    with files.opened(path) as fd:
        for part in () if fd is None else read_raw(fd, start, os.fstat(fd).st_size):
            before, held = len(held), held + part
            ends = (marked.end() for marked in _NAMING_MARKER.finditer(held))
            found += part.count(b"\n") - sum(end >= before for end in ends)
            held = held[-_LONGEST_MARKER:]
    return found


def behind_marker(fd: int, batch: str) -> int | None:
    """Return the offset after the marker of a batch; `None` if the file does not contain it.

    A message cannot contain a marker at the start of a line: JSON escapes the newline before it.
    """
    wanted = b"\n" + marker(batch)
    offset, held = 0, b"\n"  # the first line of the file has no newline before it
    for part in read_raw(fd, 0, os.fstat(fd).st_size):
        held += part
        if (found := held.find(wanted)) >= 0:
            return offset - 1 + found + len(wanted)
        kept = min(len(held), len(wanted) - 1)
        offset += len(held) - kept
        held = held[len(held) - kept :]
    return None


def is_marker(line: bytes) -> bool:
    """Return whether a line is a batch marker."""
    return _MARKER.fullmatch(line) is not None


class Names:
    """Assign ids and times to the lines of a batch that lack them, the same on every read.

    An id consists of the batch in the next marker and the line's distance to that marker, so a copy
    of both in any file gives the same id. A line without a marker after it gets a name that is only
    valid for this batch in this file. Older versions named all lines that way.
    """

    def __init__(self, batch: str) -> None:
        self.batch = batch
        self._since = self._marker = 0  # the known marker applies between these offsets
        self._named = ""

    def of(
        self, at: int, behind: Callable[[int], Iterable[bytes]]
    ) -> tuple[Callable[[], str], Callable[[], float]]:
        """Return functions for the id and the time of the line at an offset; see `sort`.

        Args:
            at: the offset.
            behind: returns the bytes from an offset on, in chunks.
        """
        return partial(self._name, at, behind), partial(self._moment, at)

    def _name(self, at: int, behind: Callable[[int], Iterable[bytes]]) -> str:
        self._look(at, behind)
        if not self._named:
            return f"{self.batch}-{at}"
        return f"{self._named}-{self._marker - at}"

    def _moment(self, at: int) -> float:
        # `_name` has looked already.
        named = self._named if self._since <= at < self._marker else ""
        found = moment_of(named or self.batch)
        return time.time() if found is None else found

    def _look(self, at: int, behind: Callable[[int], Iterable[bytes]]) -> None:
        if not self._since <= at < self._marker:
            # If the read fails, the former values remain.
            self._marker, self._named = _next_marker(behind(at), at)
            self._since = at


def _next_marker(pieces: Iterable[bytes], at: int) -> tuple[int, str]:
    """Return the offset of the next marker and its batch, starting at a line; see `Names`."""
    offset, held = at, b""
    for part in pieces:
        held += part
        if marked := _NAMING_MARKER.search(held):
            return offset + marked.start() + 1, marked[1].decode()
        done = max(0, len(held) - _LONGEST_MARKER)  # a partial marker continues in the next chunk
        offset += done
        held = held[done:]
    return sys.maxsize, ""


def markers_at(fd: int, start: int, end: int) -> bytes:
    """Return the consecutive markers in a file from an offset on, up to another one."""
    ahead = os.pread(fd, max(0, min(_AHEAD, end - start)), start)
    found = _MARKERS_FIRST.match(ahead)
    return b"" if found is None else found[0]


def sort_all(
    content: bytes, batch: str, *, to: str, longest: Callable[[bytes], int]
) -> Iterator[tuple[bytes, Message | str | None]]:
    """Yield each line of a batch and its meaning, see `sort`.

    Args:
        content: all lines of the batch, including markers.
        batch: names lines without an id if no marker follows them.
        to: the owner of the mail.
        longest: returns how many bytes a line may have.
    """
    at, names = 0, Names(batch)
    for line in io.BytesIO(content):
        nameless, undated = names.of(at, partial(parts, content))
        found = sort(line, to=to, max_bytes=longest(line), nameless=nameless, undated=undated)
        yield line, found
        at += len(line)


def is_blank_or_marker(line: bytes) -> bool:
    return line.isspace() or is_marker(line)


def sort(
    line: bytes,
    *,
    to: str,
    max_bytes: int,
    nameless: Callable[[], str] = new_id,
    undated: Callable[[], float] = time.time,
) -> Message | str | None:
    """Return a message, or why the line is not one, or `None` for blank lines and markers."""
    if is_blank_or_marker(line):
        return None
    if len(line) > max_bytes:
        return f"it is longer than {max_bytes} bytes"
    try:
        return Message.decode(line, to=to, nameless=nameless, undated=undated)
    except NotAMessage as error:
        return str(error)


def explain_rejected(rejected: Path) -> str:
    """Explain why the last lines in a file of rejected lines were rejected.

    Returns:
        The only reason, or the most frequent ones, each after its number of lines.

    Raises:
        StoreError: the file cannot be read.
    """
    lines = _last_lines(rejected)
    found = Counter(map(_explain, lines))
    if len(found) <= 1:
        return "".join(found)
    named = dict(found.most_common(_MOST_REASONS))
    if more := found.total() - sum(named.values()):
        named["other reasons"] = more
    told = ", ".join(f"{count}: {reason}" for reason, count in named.items())
    return f"of the last {len(lines)}, {told}" if len(lines) == _MOST_EXPLAINED else told


def _last_lines(path: Path) -> list[bytes]:
    """Return the last lines of a file, as many as fit in a message, or the end of a longer line."""
    with files.opened(path) as fd:
        if fd is None:
            return []
        start = max(0, os.fstat(fd).st_size - MAX_MESSAGE_BYTES - 1)
        found = io.BytesIO(files.read_descriptor(fd, start)).readlines()
    return found[1 if start and len(found) > 1 else 0 :][-_MOST_EXPLAINED:]


def _explain(line: bytes) -> str:
    found = sort(line, to="", max_bytes=MAX_MESSAGE_BYTES)
    return found if isinstance(found, str) else "its reader could not handle it"


def reject(refused: Iterable[bytes], rejected: Path, *, at: int, durable: bool) -> int:
    """Write these lines to the file of rejected lines at an offset, and truncate it after them.

    A killed reader may have written them already. The next reader starts at the same offset, so
    they are in the file once.

    Returns:
        The offset for the next rejected line.

    Raises:
        StoreError: the lines cannot be written.
    """
    content = b"".join(line.rstrip(b"\n") + b"\n" for line in refused)
    with locks.locked(rejected) as fd, translate_os_errors(rejected):
        if durable and not os.fstat(fd).st_size:
            directories.sync_directory(rejected.parent)
        if os.fstat(fd).st_size > at:
            os.ftruncate(fd, at)
        files.write_at_end(fd, content)
        if durable:
            files.sync(fd)
        return os.fstat(fd).st_size
