"""A teammate's current activity, as it reports it in the small file `activity/NAME.json`.

The transcript shows most of it, but not a model call that has no reply yet, or its next attempt.
Its last lines may also be megabytes long. The activity file is quick to read however long the
conversation is.

Nothing is synced, and no decision depends on the content. The file names the process that wrote it;
if that process has ended, the content is outdated.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from teamd.errors import StoreError
from teamd.files import files
from teamd.process_id import Identity

MODEL: Final = "model"
TOOL: Final = "tool"
LONGEST: Final = 100  # characters of a text in the file
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
        since: when the call failed for the first time, likewise.
    """

    attempt: int
    attempts: int
    cause: str
    next: float | None
    since: float


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
        """Return the content of the file, a JSON object."""
        document = asdict(self)
        return json.dumps({**document.pop("process"), **document}).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Activity | None:
        """Read the file; `None` if it has other content, such as that of another version."""
        try:
            found: dict[str, Any] = json.loads(content)
            return cls(
                process=Identity(pid=found["pid"], started=found["started"]),
                since=found["since"],
                doing=Doing(**found["doing"]) if found["doing"] else None,
                context=found["context"],
                # A teammate of an older version does not say when its call failed first.
                retry=Retry(**{"since": found["since"], **found["retry"]})
                if found["retry"]
                else None,
                memory_bytes=found["memory_bytes"],
            )
        except _DAMAGED:
            return None


def write_activity(path: Path, activity: Activity) -> None:
    """Write the current activity; errors are ignored."""
    with suppress(StoreError):
        files.replace(path, activity.encode(), durable=False)


def read_activity(path: Path) -> Activity | None:
    """Return a teammate's last report; `None` if none can be read."""
    with suppress(StoreError):
        content = files.read(path)
        return None if content is None else Activity.decode(content)
    return None


def shorten(text: str) -> str:
    """Return a text as one line of at most `LONGEST` characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
