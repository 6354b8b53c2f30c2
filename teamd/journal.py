"""Logs for machines and people: one JSON object a line, rotated."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from io import FileIO, TextIOWrapper
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

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
