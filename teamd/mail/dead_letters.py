"""Lines of an inbox that were no message, kept as they came, each once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from teamd.files import directories, files, locks
from teamd.files.os_errors import translate_os_errors
from teamd.mail import lines

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class DeadLetters:
    """One owner's file of rejected lines; the lock of the inbox guards it."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self._durable = durable

    def size(self) -> int:
        """Where the next line goes."""
        with translate_os_errors(self.path):
            return self.path.stat().st_size if self.path.exists() else 0

    def put(self, rejected: Iterable[bytes], *, at: int) -> int:
        """Have these lines stand from an offset on, and nothing behind them.

        A reader that was killed may have put them there already: whoever comes after it begins
        at the same offset, and they are there once.

        Returns:
            Where the next one goes.

        Raises:
            StoreError: they cannot be written.
        """
        content = b"".join(line.rstrip(b"\n") + b"\n" for line in rejected)
        with locks.locked(self.path) as fd, translate_os_errors(self.path):
            if self._durable and not os.fstat(fd).st_size:
                directories.sync_directory(self.path.parent)
            if os.fstat(fd).st_size > at:
                os.ftruncate(fd, at)
            files.write_at_end(fd, content)
            if self._durable:
                files.sync(fd)
            return os.fstat(fd).st_size

    def count(self) -> int:
        """How many lines there are."""
        return lines.count(self.path)
