"""A transcript on disk: records are only ever appended, and torn lines are skipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from teamd.errors import StoreError
from teamd.files import files, lines
from teamd.messages import Message, is_moment
from teamd.model_server import Usage
from teamd.transcript.records import KINDS, Checkpoint, Record, Unknown

_UNDATED: Final = -1.0  # no moment
_CHECKPOINT: Final = b'{"record": "%s"' % Checkpoint.kind.encode()
_BY_NAME: Final = {kind.kind: kind for kind in KINDS}
_FIELDS: Final = {kind: {one.name for one in fields(kind)} for kind in (*KINDS, Usage)}


@dataclass(slots=True)
class Transcript:
    """The records of one conversation.

    Attributes:
        path: the file.
        durable: whether `append` waits until records are on disk.
        check: called before each write; an exception from it prevents the write.
    """

    path: Path
    _: KW_ONLY
    durable: bool = True
    check: Callable[[], None] = lambda: None
    _unsafe: int | None = field(default=None, init=False)  # from there on a power cut may take it
    _failed: StoreError | None = field(default=None, init=False)  # only the next process goes on

    def append(self, *records: Record, durable: bool = True) -> range:
        """Add records, all or none.

        Args:
            records: the records to add.
            durable: whether they, and all before them, are on disk when this returns. Otherwise the
                next durable records, or `settle`, sync them.

        Returns:
            Their place in the file.

        Raises:
            StoreError: the file cannot be written; it is as it was at the last sync. If
                earlier records were lost by that, only another process can add more: it reads the
                file again.
        """
        return self.append_lines(b"".join(record.encode() for record in records), durable=durable)

    def append_lines(self, encoded: bytes, *, durable: bool = True) -> range:
        """Add encoded records, see `append`."""
        self.check()
        if self._failed is not None:
            raise self._failed
        durable, unsafe = durable and self.durable, self._unsafe
        try:
            start = files.append_alone(self.path, encoded, durable=durable, taken_back_to=unsafe)
        except StoreError as error:
            if durable and unsafe is not None:  # records are lost that the caller has seen
                self._failed = error
            raise
        if durable or not self.durable:
            self._unsafe = None
        elif unsafe is None:
            self._unsafe = start
        return range(start, start + len(encoded))

    def settle(self) -> None:
        """Sync all records to disk; a power cut cannot remove them from then on.

        Raises:
            StoreError: the disk failed; the file is as it was at the last sync.
        """
        if self._unsafe is not None or self._failed is not None:
            self.append_lines(b"")

    def make_durable(self) -> None:
        """Make the records that were read safe from a power cut, before others build on them."""
        if self.durable:
            files.make_durable(self.path)

    def records(self, start: int = 0) -> Iterator[Record]:
        """Yield the records, oldest first; a line that a killed writer tore is skipped.

        Args:
            start: the offset of the first record's line.
        """
        yield from decode_lines(lines.read_lines(self.path, start))

    def checkpoints(self) -> Iterator[tuple[range, Checkpoint]]:
        """Yield the checkpoints with their places in the file, the newest first."""
        for start in lines.find_lines(self.path, _CHECKPOINT):
            line = next(lines.read_lines(self.path, start))
            record = decode(line)
            if isinstance(record, Checkpoint):
                yield range(start, start + len(line)), record


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; `None` if the line is torn or holds no object."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def decode(line: bytes) -> Record | None:
    """Return the record in a line; `None` if the line is torn or holds no record."""
    found = parse(line)
    return None if found is None else decode_object(found)


def is_checkpoint(line: bytes) -> bool:
    """Return whether a line is a checkpoint as we write them; those can be very long."""
    return line.startswith(_CHECKPOINT)


def decode_object(found: dict[str, Any]) -> Record:
    """Return the record that a JSON object represents."""
    try:
        kind = _BY_NAME[found["record"]]
        values = _known(kind, found)
        for name in values.keys() & _DECODERS.keys():
            values[name] = _DECODERS[name](values[name])
        record: Record = kind(**values)
    except (KeyError, TypeError, ValueError, AttributeError):
        return Unknown()
    return record


def decode_lines(lines: Iterable[bytes]) -> Iterator[Record]:
    """Yield the records in lines; torn lines and lines without a record are skipped."""
    for line in lines:
        record = decode(line)
        if record is not None:
            yield record


def message_in(value: object) -> Message | None:
    """Return the message in a JSON object of a transcript or inbox, if it has a text."""
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        return None
    extra = dict(value)
    return Message(
        id=_text(extra.pop("id", None)),
        type=_text(extra.pop("type", None), "message"),
        sender=_text(extra.pop("from", None), "unknown"),
        to=_text(extra.pop("to", None)),
        content=extra.pop("content"),
        timestamp=extra.pop("timestamp", _UNDATED),
        extra=extra,
    )


def _known(kind: Any, found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name in _FIELDS[kind]}


def _text(value: object, otherwise: str = "") -> str:
    return value if isinstance(value, str) else otherwise


def _messages(value: object) -> tuple[Message, ...]:
    found = value if isinstance(value, list) else []
    return tuple(filter(None, map(message_in, found)))


def _usage(value: dict[str, Any] | None) -> Usage | None:
    if value is None:
        return None
    return Usage(**{name: int(count) for name, count in _known(Usage, value).items()})


def _names(value: list[str] | None) -> frozenset[str] | None:
    return None if value is None else frozenset(value)


def _moment(value: object) -> float | None:
    return float(value) if is_moment(value) else None


_DECODERS: Final[dict[str, Any]] = {
    "messages": _messages,
    "usage": _usage,
    "tools": _names,
    "dropped": frozenset,
    "closes": tuple,
    "senders": tuple,
    "time": lambda value: _moment(value) or 0.0,
    "taken": _moment,
}
