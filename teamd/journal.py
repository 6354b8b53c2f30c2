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

MAX_BYTES: Final = 5_000_000
KEPT_FILES: Final = 3
_PRIVATE: Final = 0o600


class Journal:
    """Notes events with their facts: `journal.note("forked", pid=42)`."""

    def __init__(self, path: Path, who: str) -> None:
        self._logger = logging.Logger(f"teamd.{who}")  # noqa: LOG001 -- not in the registry: no globals
        handler = _PrivateRotatingFile(
            path, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, delay=True, encoding="utf-8"
        )
        handler.setFormatter(_JsonLine())
        self._logger.addHandler(handler)
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
        for handler in tuple(self._logger.handlers):
            handler.close()


class _PrivateRotatingFile(RotatingFileHandler):
    """Goes on in a new file when another process, or a person, has moved this one away."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and not self._stands(self.stream):
            self.stream.close()
            self.stream = None
        super().emit(record)

    def doRollover(self) -> None:  # noqa: N802 -- logging's name
        # Another process may have done it a moment ago, or the folder be read-only: the line is
        # worth more than the limit.
        with suppress(OSError):
            super().doRollover()

    def _stands(self, stream: TextIOWrapper) -> bool:
        with suppress(OSError):
            mine, there = os.fstat(stream.fileno()), Path(self.baseFilename).stat()
            return (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev)
        return False

    def _open(self) -> TextIOWrapper:
        fd = os.open(
            self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _PRIVATE
        )
        return TextIOWrapper(FileIO(fd, "a"), encoding=self.encoding, errors="replace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """A log that cannot be written must not end what it reports on."""


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts: dict[str, Any] = getattr(record, "facts", {})
        line = {
            "time": moment,
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **facts,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
