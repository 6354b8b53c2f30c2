"""Logs for people and programs: rotated files with one JSON object per line.

The module `logging` is not used. It imports sockets, pickle, queues and threads, which take a third
of the start time.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from teamd.files.safe_open import PRIVATE_DIRECTORY, private_umask, safe_open
from teamd.masking import Mask

MAX_BYTES: Final = 5_000_000
KEPT_FILES: Final = 3


class LoggedEvent(StrEnum):
    """An entry of a log that is also an event of the team; the value is the entry's text.

    The member's name in lower case is the kind that `teamctl events` shows.
    """

    SPAWNED = "spawned"
    PROCESS_BEGAN = "begins"
    PROCESS_ENDED = "exited"
    CRASHED = "crashed"
    FAILED = "failed"
    STUCK = "stuck"
    RESUMED = "resumed"
    SHUTDOWN_ASKED = "asked to shut down"
    SHUTDOWN_REJECTED = "shutdown rejected"
    SHUTTING_DOWN = "shutting down"
    LIMIT_RAISED = "limits raised"
    RETRY = "model call failed, trying again"
    MODEL_CALLS_SLOWED = "model calls slowed"
    MAIL_REJECTED = "line rejected"
    PERMISSION = "permission"
    PUSH = "push"
    CHECK_BEGAN = "check begins"
    CHECK_ENDED = "check ended"
    RELOADED = "reloaded"
    TEAMD_STARTED = "ready"
    TEAMD_STOPPED = "stopped"


class Journal:
    """Writes events with their facts: `journal.note("forked", pid=42)`.

    An entry that cannot be written is dropped, because a log must not end the process that writes
    it.

    Args:
        path: the file. Its folder is created again if it was removed. If the team directory above
            it was replaced, entries still go to the old file in its new place.
        who: the process that writes the entries.
        mask: keeps secrets out of the entries.
    """

    def __init__(self, path: Path, who: str, mask: Mask | None = None) -> None:
        self._file = _RotatingFile(Path(os.path.abspath(path)))  # noqa: PTH100 -- keeps links
        self._who = who
        self._mask = mask or Mask()

    def note(self, event: str, **facts: Any) -> None:
        """Write an event of ordinary work."""
        self._write("info", event, facts)

    def warn(self, event: str, **facts: Any) -> None:
        """Write an event that needs a person's attention."""
        self._write("warning", event, facts)

    def error(self, event: str, error: BaseException, **facts: Any) -> None:
        """Write a failure of the program itself, with its traceback."""
        import traceback  # noqa: PLC0415 -- 5 ms, only for this

        lines = "".join(traceback.format_exception(error))
        self._write("error", event, {**facts, "traceback": lines.removesuffix("\n")})

    def close(self) -> None:
        self._file.close()

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": level, "event": event, "who": self._who, **facts}
        with suppress(Exception):
            self._file.append(self._encode(line).encode(errors="replace") + b"\n")

    def _encode(self, line: dict[str, Any]) -> str:
        text = json.dumps(line, ensure_ascii=False, default=str)
        if self._mask.text(text) == text:
            return text
        # Mask each value alone: a secret of digits may also occur in a number.
        return json.dumps(self._mask.value(json.loads(text)), ensure_ascii=False)


class _RotatingFile:
    """A log file that is opened again after another process or a person has moved it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._home = _identity(path.parent.parent)
        self._fd: int | None = None

    def append(self, line: bytes) -> None:
        """Write a line; if the file would become too large, start a new file.

        Raises:
            OSError: the line cannot be written.
            StrangeFile: the path is not a regular file.
        """
        if self._fd is not None and self._at_home and _identity(self._fd) != _identity(self._path):
            self.close()
        fd = self._open()
        if (size := os.fstat(fd).st_size) and size + len(line) >= MAX_BYTES:
            # Another process may have just rotated it, or the folder may be read-only. Writing the
            # line matters more than the size limit.
            with suppress(OSError):
                self._rotate()
            fd = self._open()
        while line:
            line = line[os.write(fd, line) :]

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    @property
    def _at_home(self) -> bool:
        return _identity(self._path.parent.parent) == self._home

    def _open(self) -> int:
        if self._fd is None:
            if not self._at_home:
                raise FileNotFoundError(self._path)
            with suppress(FileExistsError), private_umask():
                self._path.parent.mkdir(PRIVATE_DIRECTORY)
            self._fd = safe_open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        return self._fd

    def _rotate(self) -> None:
        if not self._at_home:
            return
        self.close()
        name = self._path.name
        files = [self._path, *(self._path.with_name(f"{name}.{n + 1}") for n in range(KEPT_FILES))]
        for newer, older in reversed([*pairwise(files)]):
            with suppress(FileNotFoundError):
                newer.replace(older)


def _identity(file: int | Path) -> tuple[int, int] | None:
    """Return the device and inode of a path or descriptor; `None` if it does not exist."""
    with suppress(OSError):
        found = os.fstat(file) if isinstance(file, int) else file.stat()
        return found.st_dev, found.st_ino
    return None
