"""What a teammate does right now, in its own words: `activity/NAME.json`, one small file for each.

The transcript tells most of it, but not what is under way: a model call that has no reply yet, or
its next attempt. And its last lines may be megabytes. So each teammate says it in a file of its
own, which is read at once however long the conversation is.

It is written in place, by one write of a fixed length to a file that stays open: some microseconds,
where a new file renamed over the old one takes a hundred times as long. Nothing waits for the disk
and nothing rests on what it says. Who reads while it is written sees a wrong checksum, and looks
again. The file names the process that wrote it: if that is gone, nothing is done, whatever it says.
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
LONGEST: Final = 100  # characters of a text in it
_SIZE: Final = 2048  # room for two of them, each character escaped, and for the figures
_HEAD: Final = b'{"sum": "%08x", '
_HEAD_SIZE: Final = len(_HEAD % 0)
_LOOKS: Final = 20  # a write takes far less than one
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Doing:
    """Something that is under way.

    Attributes:
        kind: `tool` or `model`.
        what: the tool with a short argument, or the model's name.
    """

    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The next attempt of a model call that has failed.

    Attributes:
        attempt: its number, the first call being 1.
        attempts: how many there are at the most.
        cause: why the last one failed.
        next: when it begins, in seconds since the epoch, and it may have begun; `None` where it
            waits for its turn, since the server has refused several.
    """

    attempt: int
    attempts: int
    cause: str
    next: float | None


@dataclass(frozen=True, slots=True)
class Activity:
    """What one process of a teammate has said last.

    Attributes:
        process: the one that said it.
        since: when it began that, in seconds since the epoch.
        doing: what is under way; `None` while it rests.
        context: the share of the context that its conversation takes, from 0 to 1 or a bit above.
        retry: of the model call that is under way, or of one that the tool makes.
        memory_bytes: its memory, what it shares with others counted as its share.
    """

    process: Identity
    since: float
    doing: Doing | None = None
    context: float | None = None
    retry: Retry | None = None
    memory_bytes: int | None = None

    def encode(self) -> bytes:
        """Return the content of the file: a JSON object, and spaces up to its fixed length."""
        process = {"pid": self.process.pid, "started": self.process.started}
        doing = None if self.doing is None else asdict(self.doing)
        retry = None if self.retry is None else asdict(self.retry)
        own = {"since": self.since, "context": self.context, "memory_bytes": self.memory_bytes}
        text = json.dumps({**process, **own, "doing": doing, "retry": retry})
        rest = text[1:].encode().ljust(_SIZE - _HEAD_SIZE - 1) + b"\n"
        return _HEAD % crc32(rest) + rest

    @classmethod
    def decode(cls, content: bytes) -> Activity | None:
        """Read the file; `None` where it holds something else, or is just being written."""
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
        except _DAMAGED:  # of another version
            return None


class ActivityFile:
    """The file of one teammate, in the hands of its process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def write(self, activity: Activity) -> None:
        """Say what is done now; where that cannot be written nobody sees it, and that is all."""
        with suppress(OSError, StoreError):
            if self._fd < 0 or not os.fstat(self._fd).st_nlink:  # somebody has removed it
                self._open()
            os.pwrite(self._fd, activity.encode(), 0)

    def close(self) -> None:
        """Give the descriptor back."""
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
    """Return what a teammate has said last; `None` where nothing can be read."""
    with suppress(StoreError):
        for _ in range(_LOOKS):
            content = files.read(path)
            if content is None:
                return None
            if (found := Activity.decode(content)) is not None:
                return found
    return None


def shorten(text: str) -> str:
    """Return a text as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
