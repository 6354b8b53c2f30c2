"""A teammate's conversation on disk: one JSON record a line, only ever appended to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from teamd.store import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Record = dict[str, Any]


class Transcript:
    """The records of one conversation; the key `record` of each tells its kind.

    Args:
        path: the file.
        durable: whether `append` waits for the disk itself.
        check: called before anything is written; what it raises forbids it.
    """

    def __init__(
        self, path: Path, *, durable: bool = True, check: Callable[[], None] | None = None
    ) -> None:
        self.path = path
        self._durable = durable
        self._check = check

    def append(self, *records: Record) -> None:
        """Add records, all or none; they are on disk when this returns.

        Raises:
            StoreError: the file cannot be written; it is as it was.
        """
        lines = b"".join(
            json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            for record in records
        )
        if self._check is not None:
            self._check()
        files.append_alone(self.path, lines, durable=self._durable)

    def make_durable(self) -> None:
        """Make what was read safe from a power cut, before anything is built on it, see `files`."""
        if self._durable:
            files.make_durable(self.path)

    def records(self) -> Iterator[Record]:
        """Yield what was written, oldest first; a line that a killed writer tore is passed over."""
        for line in (files.read(self.path) or b"").split(b"\n"):
            record = parse(line)
            if record is not None:
                yield record


def mail_in(record: Record) -> list[Record]:
    """The messages that a record puts into the conversation; none for records of another kind."""
    if record.get("record") != "mail" or not isinstance(record.get("messages"), list):
        return []
    return [fields for fields in record["messages"] if isinstance(fields, dict)]


def parse(line: bytes) -> Record | None:
    """The record that a line holds, if it is whole."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
