"""A file with one side's position in a link, which neither a kill nor a power cut can destroy.

The file has two lines of equal length, which are overwritten in turn. A torn write damages one line
and leaves the other. Each line has a digest, which shows whether it is intact, and a count, which
shows which line is newer.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeGuard

from teamd.errors import translate_os_errors
from teamd.files import files
from teamd.files.directories import sync_directory
from teamd.files.safe_open import safe_open
from teamd.messages import is_tag

_SLOT: Final = 256  # bytes of a line, more than any valid line needs
_CHAIN: Final = re.compile("[0-9a-f]{0,32}")
_MOST: Final = 10**18
_SORTED: Final = json.JSONEncoder(sort_keys=True)


def is_number(value: object) -> TypeGuard[int]:
    """Return whether an untrusted value is valid as the number of a line."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def is_chain(value: object) -> TypeGuard[str]:
    """Return whether an untrusted value is valid as the chain of a line."""
    return isinstance(value, str) and _CHAIN.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in an outbox: its epoch, a line number, and the digest of all lines up to it."""

    epoch: str
    n: int
    chain: str

    def to_json(self) -> dict[str, Any]:
        """Return the cursor as used in files and frames."""
        return {"epoch": self.epoch, "n": self.n, "chain": self.chain}

    @classmethod
    def from_json(cls, found: Any) -> Cursor | None:
        """Decode a cursor; `None` if it is invalid."""
        match found:
            case {"epoch": epoch, "n": n, "chain": chain}:
                if is_tag(epoch) and is_number(n) and is_chain(chain):
                    return cls(epoch, n, chain)
        return None


@dataclass(slots=True)
class CursorFile:
    """One cursor on disk, with one writer.

    Attributes:
        durable: whether `write` waits for the disk.
        damaged: whether the file existed without a valid line; set by `read`.
        blank: whether the damaged file was never written to, because its creator was stopped.
    """

    path: Path
    durable: bool
    damaged: bool = False
    blank: bool = False
    _count: int = field(default=0)

    def read(self) -> Cursor | None:
        """Return the cursor last written; `None` if it is unknown."""
        content = files.read(self.path)
        slots = [] if content is None else [content[:_SLOT], content[_SLOT : 2 * _SLOT]]
        found = [one for one in map(_decode, slots) if one is not None]
        self.damaged = content is not None and not found
        self.blank = content is not None and not content.strip(b"\0")
        self._count, cursor = max(found, key=lambda one: one[0], default=(0, None))
        return cursor

    def write(self, cursor: Cursor) -> None:
        """Write another cursor; it is on disk when this returns, if `durable`.

        Raises:
            StoreError: it could not be written; the former cursor remains.
        """
        count = self._count + 1
        with translate_os_errors(self.path):
            fd = safe_open(self.path, os.O_WRONLY | os.O_CREAT)
            try:
                if self.durable and not os.fstat(fd).st_size:
                    sync_directory(self.path.parent)
                os.pwrite(fd, _encode(count, cursor), count % 2 * _SLOT)
                if self.durable:
                    files.sync(fd)
            finally:
                os.close(fd)
        self._count = count


def _encode(count: int, cursor: Cursor) -> bytes:
    # The same result as `_SORTED` in a fraction of the time: no value needs escaping.
    epoch, n, chain = cursor.epoch, cursor.n, cursor.chain
    text = f'{{"chain": "{chain}", "count": {count}, "epoch": "{epoch}", "n": {n}}}'
    return f'{text[:-1]}, "digest": "{_digest(text)}"}}'.ljust(_SLOT - 1).encode() + b"\n"


def _decode(slot: bytes) -> tuple[int, Cursor] | None:
    try:
        fields = json.loads(slot)
        digest = fields.pop("digest")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return None
    cursor = Cursor.from_json(fields)
    if cursor is None or digest != _digest(_SORTED.encode(fields)):
        return None
    return int(fields["count"]), cursor


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
