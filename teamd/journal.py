"""Logs for machines and people: one JSON object a line, rotated."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO, TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from teamd.files.safe_open import PRIVATE_DIRECTORY, private_umask, safe_open
from teamd.masking import Mask

MAX_BYTES: Final = 5_000_000
KEPT_FILES: Final = 3


class Journal:
    """Notes events with their facts: `journal.note("forked", pid=42)`.

    Args:
        path: the file, in a folder that is made anew where somebody has removed it. If the team
            directory above that is another one by now, nothing is written into it: what is
            noted stands in the old file, wherever that went.
        who: whose events these are.
        mask: keeps secrets out of all that is noted.
    """

    def __init__(self, path: Path, who: str, mask: Mask | None = None) -> None:
        self._logger = logging.Logger(f"teamd.{who}")  # noqa: LOG001 -- not in the registry: no globals
        self._file = _PrivateRotatingFile(
            path, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, delay=True, encoding="utf-8"
        )
        self._file.setFormatter(_JsonLine(mask or Mask()))
        self._logger.addHandler(self._file)
        self._who = who

    def note(self, event: str, **facts: Any) -> None:
        """Write an event that belongs to ordinary work."""
        self._logger.info(event, extra={"facts": {"who": self._who, **facts}})

    def warn(self, event: str, **facts: Any) -> None:
        """Write an event that a person should look at."""
        self._logger.warning(event, extra={"facts": {"who": self._who, **facts}})

    def error(self, event: str, error: BaseException, **facts: Any) -> None:
        """Write a failure of the program itself, with its traceback."""
        self._logger.error(event, exc_info=error, extra={"facts": {"who": self._who, **facts}})

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _PrivateRotatingFile(RotatingFileHandler):
    """Goes on in a new file when another process, or a person, has moved this one away."""

    def __init__(self, path: Path, **terms: Any) -> None:
        super().__init__(path, **terms)
        self._folder = Path(self.baseFilename).parent
        self._home = _identity(self._folder.parent)

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and self._at_home and not self._stands(self.stream):
            self.stream.close()
            self.stream = None
        super().emit(record)

    def doRollover(self) -> None:  # noqa: N802 -- logging's name
        # Another process may have done it a moment ago, or the folder be read-only: the line is
        # worth more than the limit.
        with suppress(OSError):
            if self._at_home:
                super().doRollover()

    @property
    def _at_home(self) -> bool:
        return _identity(self._folder.parent) == self._home

    def _stands(self, stream: TextIOWrapper) -> bool:
        return _identity(stream.fileno()) == _identity(Path(self.baseFilename))

    def _open(self) -> TextIOWrapper:
        if not self._at_home:
            raise FileNotFoundError(self.baseFilename)
        with suppress(FileExistsError), private_umask():
            self._folder.mkdir(PRIVATE_DIRECTORY)
        fd = safe_open(Path(self.baseFilename), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        return TextIOWrapper(FileIO(fd, "a"), encoding=self.encoding, errors="replace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """A log that cannot be written must not end what it reports on."""


def _identity(file: int | Path) -> tuple[int, int] | None:
    """Identify the file that stands there, or is open; `None` for none."""
    with suppress(OSError):
        found = os.fstat(file) if isinstance(file, int) else file.stat()
        return found.st_dev, found.st_ino
    return None


class _JsonLine(logging.Formatter):
    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level, event = record.levelname.lower(), record.getMessage()
        facts: dict[str, Any] = getattr(record, "facts", {})
        line = {"time": moment, "level": level, "event": event, **facts}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False, default=str)
        if self._mask.text(text) == text:
            return text
        # Value by value: a password of digits may also be found in a number.
        return json.dumps(self._mask.value(json.loads(text)), ensure_ascii=False)
