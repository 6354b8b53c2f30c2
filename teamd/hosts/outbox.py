"""The outbox for another host: a file of mail that any local process may append to.

Each line is `{"kind": "mail", "to": NAME, "team": NAME, "message": {…}}`. Versions before wrote the
keys `n` and `chain` as well, a first line about the file, and lines of other kinds, which are
passed over. A line stays until the other host has confirmed it; only the postman removes lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from teamd.errors import NotAMessage, StoreError, Unsynced, translate_os_errors
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostPlaces
from teamd.messages import parse_object

MAX_OUTBOX_BYTES: Final = 67_108_864
MAX_LINE_BYTES: Final = 1_000_000  # a broker accepts messages up to 1 MiB
_MAIL: Final = "mail"
_TAIL: Final = 1 << 12
_REMOVED_SHARE: Final = 4  # the file is rewritten once a quarter of it is confirmed
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9-]{1,100}")


class OutboxFull(StoreError):
    """Too much mail is waiting for a host."""

    def __init__(self, host: str, most: int) -> None:
        super().__init__(
            f"too much mail waits for {host}: [hosts] outbox_bytes, {most}, are reached; "
            f"send it again once {host} can be reached"
        )


class OutLine(NamedTuple):
    """One line of an outbox.

    Attributes:
        raw: the line with its newline.
        fields: its content; `None` if it is not an object.
    """

    raw: bytes
    fields: dict[str, Any] | None

    @classmethod
    def decode(cls, raw: bytes) -> OutLine:
        try:
            return cls(raw, parse_object(raw))
        except NotAMessage:
            return cls(raw, None)

    @property
    def is_mail(self) -> bool:
        return self.fields is not None and self.fields.get("kind") == _MAIL

    @property
    def is_damaged(self) -> bool:
        """Whether no version of teamd has written the line, or no host would accept it."""
        return self.fields is None or len(self.raw) > MAX_LINE_BYTES

    def key(self, link: str) -> str:
        """Return an id of the line on a link, such as `h1>h2`: the message's, and a digest.

        One message may go to several members and hosts, and two senders may use the same id.
        """
        digest = hashlib.blake2b(link.encode() + self.raw, digest_size=10).hexdigest()
        message = (self.fields or {}).get("message")
        made = message.get("id") if isinstance(message, dict) else None
        return f"{made}-{digest}" if _PLAIN_ID.fullmatch(str(made)) else digest


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

    def append(self, *, to: str, team: str, message: Mapping[str, Any]) -> None:
        """Append a message; it is durable when this returns, and arrives once.

        Raises:
            NotAMessage: the line is too long or not valid JSON.
            OutboxFull: too much is waiting for the host.
            Unsynced: the disk failed; the line may or may not arrive.
            StoreError: the file cannot be written; it is unchanged.
        """
        fields = {"kind": _MAIL, "to": to, "team": team, "message": message}
        try:
            text = json.dumps(fields, ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise NotAMessage("a message cannot hold an infinite number") from error
        line = text.encode("utf-8", "replace") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise NotAMessage(
                f"a message of {len(line)} bytes is over the {MAX_LINE_BYTES} that another host "
                "takes; put the text into a file, commit it, and send branch and commit"
            )
        try:
            if not directories.is_directory(self.path.parent):
                HostPlaces(self.paths).create()
            self._append(line)
        except Unsynced as error:
            raise Unsynced(error.path, error.why, ids=[str(message.get("id"))]) from error

    def _append(self, line: bytes) -> None:
        with locks.locked(self.path, timeout_seconds=self.patience_seconds) as fd:
            with translate_os_errors(self.path):
                size = _whole_size(fd)
                if size < os.fstat(fd).st_size:
                    os.ftruncate(fd, size)  # of a killed writer, and never reported as written
            if size and size + len(line) > self.max_bytes:
                raise OutboxFull(self.host, self.max_bytes)
            files.append_locked(fd, self.path, line, size, durable=self.durable)

    def read(self, offset: int = 0) -> Iterator[OutLine]:
        """Yield the whole lines from an offset on, without a lock.

        Raises:
            StoreError: the file cannot be read.
        """
        with translate_os_errors(self.path), files.opened(self.path) as fd:
            if fd is None:
                return
            with os.fdopen(os.dup(fd), "rb") as file:
                file.seek(offset)
                for raw in file:
                    if raw.endswith(b"\n"):
                        yield OutLine.decode(raw)

    def remove_start(self, size: int) -> int:
        """Remove the first `size` bytes, or part of them if a removal is not worth it yet.

        Returns:
            The number of bytes that are still at the start.

        Raises:
            StoreError: the file is unchanged.
        """
        with locks.locked(self.path, timeout_seconds=self.patience_seconds) as fd:
            with translate_os_errors(self.path):
                end = os.fstat(fd).st_size
                if size > end:  # a person has changed the file: what is there is sent again
                    return 0
                if size == end:
                    # Without a sync: lines that a power cut brings back are recognized by their id.
                    os.ftruncate(fd, 0)
                    return 0
                if size * _REMOVED_SHARE < end:
                    return size
                rest = files.read_descriptor(fd, size)
            files.replace(self.path, rest, durable=self.durable)
            return 0

    def keep_aside(self, line: OutLine) -> None:
        """Append a damaged line to the file of rejected ones, from which nothing is sent."""
        rejected = self.path.with_suffix(".rejected.jsonl")
        files.append(rejected, line.raw, durable=self.durable)


class ConfirmedPosition(NamedTuple):
    """How far a host has confirmed this host's mail, as kept in `confirmed/HOST.json`.

    Attributes:
        n: the number of messages that it has confirmed so far.
        key: the key of the last of them.
        lines: the number of confirmed lines that are still at the start of the outbox.
    """

    n: int = 0
    key: str = ""
    lines: int = 0

    @classmethod
    def read(cls, path: Path) -> ConfirmedPosition | None:
        """Return the position in a file; `None` if it is missing or of another version."""
        found = read_counts(path)
        if found is None or not isinstance(key := found.get("key"), str):
            return None
        lines = found.get("lines")
        return cls(found["n"], key, lines if isinstance(lines, int) else 0)

    def write(self, path: Path, *, durable: bool) -> None:
        files.replace(path, json.dumps(self._asdict()).encode() + b"\n", durable=durable)


def read_counts(path: Path) -> dict[str, Any] | None:
    """Return the object in a small file if it has a count `n`, otherwise `None`.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        found = parse_object(files.read(path) or b"")
    except NotAMessage:
        return None
    return found if isinstance(found.get("n"), int) and "chain" not in found else None


def count_waiting(paths: TeamPaths, host: str) -> int:
    """Count the lines that a host has not confirmed.

    Raises:
        StoreError: a file cannot be read.
    """
    places = HostPlaces(paths)
    content = files.read(places.outbox(host)) or b""
    position = ConfirmedPosition.read(places.confirmed(host)) or ConfirmedPosition()
    header = content.startswith(b'{"epoch"')  # of a version before, and counts as confirmed
    return max(0, content.count(b"\n") - max(header, position.lines))


def _whole_size(fd: int) -> int:
    """Return the size of a file up to its last newline."""
    end = os.fstat(fd).st_size
    while end:
        start = max(0, end - _TAIL)
        if (found := os.pread(fd, end - start, start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0
