"""What is on its way to another host: a file of numbered lines that anybody here appends to.

Its first line says which history this is: an epoch is one sequence of numbers. Whoever lost the
file, or found that the far side knows a later one of the same epoch, begins another. The postman
alone takes lines away, those that the far side has confirmed, by writing the file anew.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from teamd.errors import NotAMessage, StoreError, Unsynced, translate_os_errors
from teamd.files import files, locks
from teamd.hosts.cursor import is_chain, is_number
from teamd.hosts.lines import MAX_LINE_BYTES, START, OutLine, encode_body
from teamd.hosts.places import HostPlaces
from teamd.message_json import is_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from teamd.files.paths import TeamPaths

MAX_OUTBOX_BYTES: Final = 67_108_864
_TAIL: Final = 1 << 16
_CHUNK: Final = 1 << 18


class DamagedOutbox(StoreError):
    """Somebody else has written into an outbox; `why` says what is wrong with it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a file in .team/hosts/outbox is damaged ({why}); move it out of there")


class OutboxFull(StoreError):
    """Too much waits for a host already."""

    def __init__(self, host: str, most: int) -> None:
        super().__init__(
            f"too much mail waits for {host}: [hosts] outbox_bytes, {most}, are reached; "
            f"send it again once {host} can be reached"
        )


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of an outbox.

    Attributes:
        epoch: names this sequence of numbers; random.
        first: the number of the line behind it.
        chain: of the line before that.
        former: the epoch from which its first lines come, if it was begun anew.
        copied: the number of the last one that came from there; the far side may know them.
    """

    epoch: str
    first: int = 1
    chain: str = START
    former: str | None = None
    copied: int = 0

    @classmethod
    def new(cls, former: str | None = None, copied: int = 0) -> Header:
        """Begin an epoch."""
        return cls(os.urandom(8).hex(), former=former, copied=copied)

    def to_json(self) -> dict[str, Any]:
        """Return it as it stands in files and frames."""
        return asdict(self)

    def encode(self) -> bytes:
        """Return the line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, raw: bytes) -> Header | None:
        """Read one; `None` for anything else."""
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            return None
        return cls.from_json(found)

    @classmethod
    def from_json(cls, found: Any) -> Header | None:
        """Read one out of a frame or a file; `None` for anything else."""
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


@dataclass(frozen=True, slots=True)
class End:
    """Where an outbox ends: its header, the last line's number and chain, and its size."""

    header: Header
    n: int
    chain: str
    size: int


@dataclass(frozen=True, slots=True)
class Outbox:
    """The mail of one team to one host.

    Attributes:
        host: in lower case.
        durable: whether `append` waits for the disk.
        max_bytes: how much may wait.
        patience_seconds: how long to wait for the file's lock.
    """

    paths: TeamPaths
    host: str
    durable: bool = True
    max_bytes: int = MAX_OUTBOX_BYTES
    patience_seconds: float = locks.TIMEOUT_SECONDS
    path: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", HostPlaces(self.paths).outbox(self.host))

    def append(self, kind: str, **fields: Any) -> int:
        """Append a line; it is safe when this returns, and arrives once.

        Returns:
            Its number.

        Raises:
            NotAMessage: it is too long, or no JSON.
            OutboxFull: too much waits for the host.
            Unsynced: the disk failed; it may arrive or not.
            StoreError: the file cannot be written; it is as it was.
        """
        try:
            body = encode_body(kind, fields)
        except ValueError as error:
            raise NotAMessage("a message cannot hold an infinite number") from error
        if len(body) > MAX_LINE_BYTES:
            raise NotAMessage(
                f"a message of {len(body)} bytes is over the {MAX_LINE_BYTES} that another host "
                "takes; put the text into a file, commit it, and send branch and commit"
            )
        HostPlaces(self.paths).create()
        try:
            return self._append(body)
        except Unsynced as error:
            message = fields.get("message") or fields
            raise Unsynced(error.path, error.why, ids=[str(message.get("id"))]) from error

    def _append(self, body: bytes) -> int:
        with locks.locked(self.path, timeout_seconds=self.patience_seconds) as fd:
            with translate_os_errors(self.path):
                end = self._end(fd)
            if end.n >= end.header.first and end.size + len(body) > self.max_bytes:
                raise OutboxFull(self.host, self.max_bytes)
            line = OutLine.make(end.n + 1, end.chain, body)
            start = b"" if end.size else end.header.encode()
            files.append_locked(fd, self.path, start + line.raw, end.size, durable=self.durable)
            return line.n

    def _end(self, fd: int) -> End:
        """Find the end of the locked file, and cut off what was torn by a kill or a power cut.

        Nobody was told that such a line is safe.
        """
        size = whole_size(fd)
        if size < os.fstat(fd).st_size:
            os.ftruncate(fd, size)
        return find_end(fd, size) or End(Header.new(), 0, START, 0)

    def compact(self, fd: int, cut: End) -> None:
        """Take away all lines up to one, which the far side has confirmed; the postman's.

        Args:
            fd: the file that the postman knows; if another one stands there, nothing is done.
            cut: where that line ends.

        Raises:
            StoreError: the file is as it was.
        """
        header = replace(cut.header, first=cut.n + 1, chain=cut.chain)

        def parts(locked: int, size: int) -> Iterator[bytes]:
            yield header.encode()
            yield from read_raw(locked, cut.size, size)

        self._rewrite(fd, parts)

    def begin_anew(self, fd: int, n: int, keep: Callable[[OutLine], bool]) -> None:
        """Begin another epoch with the lines behind a number; the postman's.

        Args:
            fd: as for `compact`.
            n: of the last line that the far side has confirmed.
            keep: asked of each line whether it is to be sent at all.

        Raises:
            StoreError: the file is as it was, or is damaged.
        """

        def parts(locked: int, size: int) -> Iterator[bytes]:
            former = read_header(locked)
            start = 0 if former is None else len(former.encode())

            def kept() -> Iterator[OutLine]:
                lines = read_lines(locked, start, size)
                return (line for line in lines if line.n > n and keep(line))

            copied = sum(1 for _ in kept())
            yield Header.new(former.epoch if former else None, copied).encode()
            before = START
            for number, line in enumerate(kept(), start=1):
                renumbered = OutLine.make(number, before, line.body)
                before = renumbered.chain
                yield renumbered.raw

        self._rewrite(fd, parts)

    def _rewrite(self, fd: int, parts: Callable[[int, int], Iterator[bytes]]) -> None:
        with locks.locked(self.path, timeout_seconds=self.patience_seconds) as locked:
            with translate_os_errors(self.path):
                if not os.path.samestat(os.fstat(fd), os.fstat(locked)):
                    return
                size = whole_size(locked)
            files.replace_by_parts(self.path, parts(locked, size), durable=self.durable)


def whole_size(fd: int) -> int:
    """Return how much of a file stands in whole lines."""
    end = os.fstat(fd).st_size
    while end:
        start = max(0, end - _TAIL)
        if (found := os.pread(fd, end - start, start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0


def find_end(fd: int, size: int) -> End | None:
    """Return where an outbox of so many bytes, all in whole lines, ends; `None` if it is empty.

    Raises:
        StoreError: it is damaged.
    """
    if not size:
        return None
    header = read_header(fd)
    if header is None:
        raise DamagedOutbox("its first line is none of ours")
    start, length, last = size, _TAIL, b""
    while start and last.count(b"\n", 0, -1) < 1:
        start = max(0, size - length)
        last, length = os.pread(fd, size - start, start), 4 * length
    raw = last[last.rfind(b"\n", 0, -1) + 1 :]
    if size == len(raw):
        return End(header, header.first - 1, header.chain, size)
    line = OutLine.decode(raw)
    if line is None:
        raise DamagedOutbox("its last line is none of ours")
    return End(header, line.n, line.chain, size)


def read_header(fd: int) -> Header | None:
    """Return the first line of an outbox; `None` where there is none."""
    return Header.decode(os.pread(fd, 1024, 0).partition(b"\n")[0])


def read_raw(fd: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes between two places, a part at a time."""
    while start < end and (part := os.pread(fd, min(_CHUNK, end - start), start)):
        yield part
        start += len(part)


def read_lines(fd: int, start: int, end: int) -> Iterator[OutLine]:
    """Yield the lines between two places.

    Raises:
        StoreError: there is something else between them.
    """
    rest = b""
    for part in read_raw(fd, start, end):
        *whole, rest = (rest + part).split(b"\n")
        for raw in whole:
            line = OutLine.decode(raw + b"\n")
            if line is None:
                raise DamagedOutbox("a line is none of ours")
            yield line
