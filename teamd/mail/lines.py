"""The lines of an inbox: messages, markers of what was taken, and what is neither: torn, say.

That is kept as it came, in a file of rejected lines.
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

_MARKER: Final = re.compile(rb'{"taken_as": "([^"\\]*)"}\s*')  # alone: a message may have any key
_LONGEST_NAME: Final = 64  # no name without an end
# Behind a newline; the one behind it is left, for a marker that follows.
_NAMING_MARKER: Final = re.compile(rb'\n{"taken_as": "([\w.-]{1,%d})"}(?=\n)' % _LONGEST_NAME)
_LONGEST_MARKER: Final = len(b'\n{"taken_as": ""}\n') + _LONGEST_NAME
_MARKERS_FIRST: Final = re.compile(rb'(?:{"taken_as": "[^"\\\n]*"}\n)*')
_AHEAD: Final = 1 << 10  # bytes in which markers that follow one another are looked for
_FAR_LONGER: Final = 64
_MOST_REASONS: Final = 3
_MOST_EXPLAINED: Final = 100  # lines; a screen that is drawn again and again shows the reasons
_CHUNK: Final = 1 << 20


def marker(batch: str) -> bytes:
    """The line that stands behind a batch: it names what came without an id, see `Names`."""
    return f'{{"taken_as": "{batch}"}}\n'.encode()


def read(fd: int, start: int, max_bytes: int = MAX_MESSAGE_BYTES, end: int = 0) -> Iterator[bytes]:
    """The lines of a locked file from an offset on, up to another one, or to its size of now.

    Only a newline ends a line. One that is somewhat longer than a message may be comes whole;
    one that is far longer comes in pieces, so that nobody can fill the memory with it.
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
    """The bytes of a file between two offsets, in pieces."""
    while start < end and (part := os.pread(fd, min(_CHUNK, end - start), start)):
        yield part
        start += len(part)


def parts(content: bytes, start: int) -> Iterator[bytes]:
    """Content from an offset on, in pieces: what looks through it needs no copy of all."""
    return (content[at : at + _CHUNK] for at in range(start, len(content), _CHUNK))


class Digest:
    """The digest of a file from its start to an offset, which can be moved on."""

    def __init__(self) -> None:
        self._found = hashlib.blake2b(digest_size=16)
        self._end = 0

    def up_to(self, fd: int, end: int) -> str:
        """Return it up to an offset that is not before the last one; the file has only grown."""
        while self._end < end and (part := os.pread(fd, min(_CHUNK, end - self._end), self._end)):
            self._found.update(part)
            self._end += len(part)
        return self._found.hexdigest()


def count(path: Path, start: int = 0) -> int:
    """Count the lines that end behind an offset of a file, without markers; 0 without a file."""
    found, held = 0, b"\n"  # a marker may begin in one part and end in the next
    with files.opened(path) as fd:
        for part in () if fd is None else read_raw(fd, start, os.fstat(fd).st_size):
            before, held = len(held), held + part
            ends = (marked.end() for marked in _NAMING_MARKER.finditer(held))
            found += part.count(b"\n") - sum(end >= before for end in ends)
            held = held[-_LONGEST_MARKER:]
    return found


def behind_marker(fd: int, batch: str) -> int | None:
    """The offset behind the marker of a batch, or `None` where it does not stand.

    A message cannot hold it at the start of a line: JSON escapes the newline before it.
    """
    wanted = b"\n" + marker(batch)
    offset, held = 0, b"\n"  # the file's first line has no newline before it
    for part in read_raw(fd, 0, os.fstat(fd).st_size):
        held += part
        if (found := held.find(wanted)) >= 0:
            return offset - 1 + found + len(wanted)
        kept = min(len(held), len(wanted) - 1)
        offset += len(held) - kept
        held = held[len(held) - kept :]
    return None


def is_marker(line: bytes) -> bool:
    """Return whether it stands behind a batch, and is no mail."""
    return _MARKER.fullmatch(line) is not None


class Names:
    """What the lines of one batch get that came without an id or a time, the same at every reading.

    An id is made of the next marker's batch and of how far above that the line stands: a copy of
    both, in whatever file, names it alike. A line without a marker behind it has a name that holds
    for this batch in this file: so were all of them, before markers named any.
    """

    def __init__(self, batch: str) -> None:
        self.batch = batch
        self._since = self._marker = 0  # between these offsets the name of the marker is known
        self._named = ""

    def of(
        self, at: int, behind: Callable[[int], Iterable[bytes]]
    ) -> tuple[Callable[[], str], Callable[[], float]]:
        """Return what gives the line at an offset its id, and what its time; see `sort`.

        Args:
            at: the offset.
            behind: returns the bytes from an offset on, in parts.
        """
        return partial(self._name, at, behind), partial(self._moment, at)

    def _name(self, at: int, behind: Callable[[int], Iterable[bytes]]) -> str:
        self._look(at, behind)
        if not self._named:
            return f"{self.batch}-{at}"
        return f"{self._named}-{self._marker - at}"

    def _moment(self, at: int) -> float:
        named = self._named if self._since <= at < self._marker else ""  # `_name` has looked
        found = moment_of(named or self.batch)
        return time.time() if found is None else found

    def _look(self, at: int, behind: Callable[[int], Iterable[bytes]]) -> None:
        if not self._since <= at < self._marker:
            # A read that fails leaves what was known before.
            self._marker, self._named = _next_marker(behind(at), at)
            self._since = at


def _next_marker(pieces: Iterable[bytes], at: int) -> tuple[int, str]:
    """The offset of the first marker and its batch, from a line on that is none; see `Names`."""
    offset, held = at, b""
    for part in pieces:
        held += part
        if marked := _NAMING_MARKER.search(held):
            return offset + marked.start() + 1, marked[1].decode()
        done = max(0, len(held) - _LONGEST_MARKER)  # what is cut off here goes on in the next part
        offset += done
        held = held[done:]
    return sys.maxsize, ""


def markers_at(fd: int, start: int, end: int) -> bytes:
    """The markers of a file that follow one another from an offset on, up to another one."""
    ahead = os.pread(fd, max(0, min(_AHEAD, end - start)), start)
    found = _MARKERS_FIRST.match(ahead)
    return b"" if found is None else found[0]


def sort_all(
    content: bytes, batch: str, *, to: str, longest: Callable[[bytes], int]
) -> Iterator[tuple[bytes, Message | str | None]]:
    """Yield each line of a batch and what it is, see `sort`.

    Args:
        content: all of its lines, and the markers among them.
        batch: what a line without an id is named by where no marker is behind it.
        to: whose mail it is.
        longest: returns how many bytes a line may have.
    """
    at, names = 0, Names(batch)
    for line in io.BytesIO(content):
        nameless, undated = names.of(at, partial(parts, content))
        found = sort(line, to=to, max_bytes=longest(line), nameless=nameless, undated=undated)
        yield line, found
        at += len(line)


def is_blank_or_marker(line: bytes) -> bool:
    """Return whether it is blank, or a marker."""
    return line.isspace() or is_marker(line)


def sort(
    line: bytes,
    *,
    to: str,
    max_bytes: int,
    nameless: Callable[[], str] = new_id,
    undated: Callable[[], float] = time.time,
) -> Message | str | None:
    """A message, why it is none, or `None` for blank lines and markers, which are neither."""
    if is_blank_or_marker(line):
        return None
    if len(line) > max_bytes:
        return f"it is longer than {max_bytes} bytes"
    try:
        return Message.decode(line, to=to, nameless=nameless, undated=undated)
    except NotAMessage as error:
        return str(error)


def explain_rejected(rejected: Path) -> str:
    """Return what is wrong with the last lines of a file of rejected ones.

    Returns:
        The one reason of all, or the most frequent ones, each behind its number of lines.

    Raises:
        StoreError: it cannot be read.
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
    """Return the last whole lines of a file that fit into a message, or the end of a longer one."""
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
    """Have these lines stand in the file of rejected ones from an offset on, and none behind.

    A reader that was killed may have put them there already: whoever comes after it begins
    at the same offset, and they are there once.

    Returns:
        Where the next one goes.

    Raises:
        StoreError: they cannot be written.
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
