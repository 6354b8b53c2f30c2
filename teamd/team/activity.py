"""A teammate's current activity, as it reports it in the small file `activity/NAME.json`.

The transcript shows most of it, but not a model call that has no reply yet, or its next attempt.
Its last lines may also be megabytes long. The activity file is quick to read however long the
conversation is.

The file is overwritten in place, by one write of fixed length to a file that stays open. This takes
some microseconds; a temporary file and rename would take a hundred times as long. Nothing is
synced, and no decision depends on the content. A reader that sees a partial write finds a wrong
checksum and reads again. The file names the process that wrote it; if that process has ended, the
content is outdated.
"""

from __future__ import annotations

import json
import os
from binascii import crc32
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from teamd.errors import StoreError
from teamd.files import files
from teamd.files.safe_open import safe_open
from teamd.process_id import Identity

MODEL: Final = "model"
TOOL: Final = "tool"
LONGEST: Final = 100  # characters of a text in the file
_SIZE: Final = 2048  # room for two texts with each character escaped, and for the numbers
_HEAD: Final = b'{"sum": "%08x", '
_HEAD_SIZE: Final = len(_HEAD % 0)
_LOOKS: Final = 20  # a write takes far less time than one read
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Doing:
    """A running activity.

    Attributes:
        kind: `tool` or `model`.
        what: the tool with a short argument, or the model's name.
    """

    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The next attempt of a failed model call.

    Attributes:
        attempt: its number; the first call is 1.
        attempts: the maximum number of attempts.
        cause: why the last attempt failed.
        next: when it starts or started, in seconds since the epoch; `None` while it waits for its
            turn because the server has refused several calls.
    """

    attempt: int
    attempts: int
    cause: str
    next: float | None


@dataclass(frozen=True, slots=True)
class Activity:
    """The last report of a teammate's process.

    Attributes:
        process: the reporting process.
        since: when the activity started, in seconds since the epoch.
        doing: the activity; `None` while the teammate is idle.
        context: the share of the context window that its conversation fills, from 0 to slightly
            above 1.
        retry: of the running model call, or of one that the tool makes.
        memory_bytes: its proportional memory use (shared memory is divided).
    """

    process: Identity
    since: float
    doing: Doing | None = None
    context: float | None = None
    retry: Retry | None = None
    memory_bytes: int | None = None

    def encode(self) -> bytes:
        """Return the content of the file: a JSON object, padded with spaces to the fixed length."""
        process = {"pid": self.process.pid, "started": self.process.started}
        doing = None if self.doing is None else asdict(self.doing)
        retry = None if self.retry is None else asdict(self.retry)
        own = {"since": self.since, "context": self.context, "memory_bytes": self.memory_bytes}
        text = json.dumps({**process, **own, "doing": doing, "retry": retry})
        rest = text[1:].encode().ljust(_SIZE - _HEAD_SIZE - 1) + b"\n"
        return _HEAD % crc32(rest) + rest

    @classmethod
    def decode(cls, content: bytes) -> Activity | None:
        """Read the file; `None` if it is being written or has other content."""
        rest = content[_HEAD_SIZE:]
        if content[:_HEAD_SIZE] != _HEAD % crc32(rest):
            return None
        try:
            found: dict[str, Any] = json.loads(content)
            return cls(
                process=Identity(pid=found["pid"], started=found["started"]),
                since=found["since"],
                doing=Doing(**found["doing"]) if found["doing"] else None,
                context=found["context"],
                retry=Retry(**found["retry"]) if found["retry"] else None,
                memory_bytes=found["memory_bytes"],
            )
        except _DAMAGED:  # written by another version
            return None


class ActivityFile:
    """The activity file of one teammate, as its process writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def write(self, activity: Activity) -> None:
        """Write the current activity; errors are ignored."""
        with suppress(OSError, StoreError):
            if self._fd < 0 or not os.fstat(self._fd).st_nlink:  # the file was removed
                self._open()
            os.pwrite(self._fd, activity.encode(), 0)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()

    def _open(self) -> None:
        self.close()
        self._fd = safe_open(self._path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._fd, _SIZE)


def read_activity(path: Path) -> Activity | None:
    """Return a teammate's last report; `None` if none can be read."""
    with suppress(StoreError):
        for _ in range(_LOOKS):
            content = files.read(path)
            if content is None:
                return None
            if (found := Activity.decode(content)) is not None:
                return found
    return None


def shorten(text: str) -> str:
    """Return a text as one line of at most `LONGEST` characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
