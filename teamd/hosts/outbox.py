"""The outbox for another host: a file of numbered lines that any local process may append to.

Its first line names the epoch, a sequence of line numbers. A new epoch starts if the file is lost,
or if the other host knows later lines of the same epoch. Only the postman removes lines, by
rewriting the file without those that the other host has confirmed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from teamd.errors import NotAMessage, StoreError, Unsynced, translate_os_errors
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.hosts.cursor import CursorFile
from teamd.hosts.lines import MAX_LINE_BYTES, START, OutLine, encode_body
from teamd.hosts.outbox_file import (
    DamagedOutbox,
    End,
    Header,
    find_end,
    read_header,
    read_lines,
    read_raw,
    whole_size,
)
from teamd.hosts.outbox_repair import Sorted, name_aside, sort_lines
from teamd.hosts.places import HostPlaces

MAX_OUTBOX_BYTES: Final = 67_108_864


class OutboxFull(StoreError):
    """Too much mail is waiting for a host."""

    def __init__(self, host: str, most: int) -> None:
        super().__init__(
            f"too much mail waits for {host}: [hosts] outbox_bytes, {most}, are reached; "
            f"send it again once {host} can be reached"
        )


@dataclass(frozen=True, slots=True)
class Outbox:
    """The mail of one team to one host.

    Attributes:
        host: in lower case.
        durable: whether `append` waits for the disk.
        max_bytes: the size up to which lines are appended.
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
        """Append a line; it is durable when this returns, and arrives once.

        Returns:
            The number of the line.

        Raises:
            NotAMessage: the line is too long or not valid JSON.
            OutboxFull: too much is waiting for the host.
            Unsynced: the disk failed; the line may or may not arrive.
            StoreError: the file cannot be written; it is unchanged.
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
        try:
            return self._append_created(body)
        except Unsynced as error:
            message = fields.get("message") or fields
            raise Unsynced(error.path, error.why, ids=[str(message.get("id"))]) from error

    def _append_created(self, body: bytes) -> int:
        """Append a line; only check and create the folders if that fails."""
        try:
            return self._append_mended(body)
        except StoreError:
            places = HostPlaces(self.paths)
            if directories.is_directory(places.outboxes):
                raise
            places.create()
        return self._append_mended(body)

    def _append_mended(self, body: bytes) -> int:
        try:
            return self._append(body)
        except DamagedOutbox:
            if not self.repair():
                raise
            return self._append(body)

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
        """Find the end of the locked file; truncate a line torn by a kill or power cut.

        Such a line was never reported as durable.
        """
        size = whole_size(fd)
        if size < os.fstat(fd).st_size:
            os.ftruncate(fd, size)
        return find_end(fd, size) or End(Header.new(), 0, START, 0)

    def compact(self, fd: int, cut: End) -> None:
        """Remove all confirmed lines; for the postman only.

        Args:
            fd: the file that the postman has read; if it was replaced, nothing is done.
            cut: the end of the last confirmed line.

        Raises:
            StoreError: the file is unchanged.
        """
        header = replace(cut.header, first=cut.n + 1, chain=cut.chain)

        def parts(locked: int, size: int) -> Iterator[bytes]:
            yield header.encode()
            yield from read_raw(locked, cut.size, size)

        self._rewrite(fd, parts)

    def begin_anew(self, fd: int, n: int, keep: Callable[[OutLine], bool]) -> None:
        """Start another epoch with the lines after a number; for the postman only.

        Args:
            fd: as for `compact`.
            n: the number of the last line that the other host has confirmed.
            keep: returns whether a line is still to be sent.

        Raises:
            StoreError: the file is unchanged or damaged.
        """

        def parts(locked: int, size: int) -> Iterator[bytes]:
            former = read_header(locked)
            start = 0 if former is None else len(former.encode())

            def kept() -> Iterator[OutLine]:
                lines = read_lines(locked, start, size)
                return (line for line in lines if line.n > n and keep(line))

            copied = sum(1 for _ in kept())
            yield from _renumbered(former.epoch if former else None, kept(), copied)

        self._rewrite(fd, parts)

    def repair(self) -> bool:
        """Continue with the intact lines of a damaged file in another epoch; keep a copy of it.

        Confirmed lines are left out. So are commands, because the other host may have executed
        them.

        Returns:
            Whether the file was damaged.

        Raises:
            StoreError: the file is unchanged.
        """
        with locks.locked(self.path, timeout_seconds=self.patience_seconds) as locked:
            content = self._read(locked)
            found = sort_lines(content)
            if not found.strange and (found.header is not None or not content):
                return False
            former, kept = self._unconfirmed(found)
            files.replace(name_aside(self.path), content, durable=self.durable)
            parts = _renumbered(former, kept, len(kept))
            files.replace_by_parts(self.path, parts, durable=self.durable)
            return True

    def begin_without_past(self) -> int:
        """Start an epoch that is unrelated to former ones, with the waiting lines except commands.

        Returns:
            The number of lines.

        Raises:
            StoreError: the file is unchanged.
        """
        with locks.locked(self.path, timeout_seconds=self.patience_seconds) as locked:
            _, kept = self._unconfirmed(sort_lines(self._read(locked)))
            parts = _renumbered(None, kept, 0)
            files.replace_by_parts(self.path, parts, durable=self.durable)
            return len(kept)

    def _read(self, locked: int) -> bytes:
        with translate_os_errors(self.path):
            return b"".join(read_raw(locked, 0, whole_size(locked)))

    def _unconfirmed(self, found: Sorted) -> tuple[str | None, list[OutLine]]:
        """Return the epoch of the lines, and the lines to move to another epoch."""
        confirmed = CursorFile(HostPlaces(self.paths).confirmed(self.host), durable=False).read()
        epoch, done = confirmed.epoch if confirmed is not None else None, 0
        # Without a header the epoch is unknown, and all lines are sent again.
        if found.header is not None:
            epoch = found.header.epoch
            done = confirmed.n if confirmed is not None and confirmed.epoch == epoch else 0
        return epoch, [one for one in found.lines if one.n > done and not one.is_request]

    def _rewrite(self, fd: int, parts: Callable[[int, int], Iterator[bytes]]) -> None:
        with locks.locked(self.path, timeout_seconds=self.patience_seconds) as locked:
            with translate_os_errors(self.path):
                if not os.path.samestat(os.fstat(fd), os.fstat(locked)):
                    return
                size = whole_size(locked)
            files.replace_by_parts(self.path, parts(locked, size), durable=self.durable)


def _renumbered(former: str | None, lines: Iterable[OutLine], count: int) -> Iterator[bytes]:
    """Yield an outbox of another epoch, of which `count` lines are from the former epoch."""
    yield Header.new(former, count).encode()
    before = START
    for number, line in enumerate(lines, start=1):
        renumbered = OutLine.make(number, before, line.body)
        before = renumbered.chain
        yield renumbered.raw
