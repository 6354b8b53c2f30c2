"""A transcript on disk: records are only ever appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.files import files
from teamd.transcript.decoding import decode_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from teamd.transcript.records import Record


class Transcript:
    """The records of one conversation.

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
        lines = b"".join(record.encode() for record in records)
        if self._check is not None:
            self._check()
        files.append_alone(self.path, lines, durable=self._durable)

    def make_durable(self) -> None:
        """Make what was read safe from a power cut, before anything is built on it, see `files`."""
        if self._durable:
            files.make_durable(self.path)

    def records(self) -> Iterator[Record]:
        """Yield what was written, oldest first; a line that a killed writer tore is passed over."""
        yield from decode_lines((files.read(self.path) or b"").split(b"\n"))
