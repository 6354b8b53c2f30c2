"""A member's mail: put by anybody, taken by its owner in two steps, so that no kill loses any.

*take* moves what is in the inbox to a file of the reader's own; *done* removes that file once the
mail stands where it belongs. A reader that died in between takes the same mail again, with the
same ids. What `take` does, in an order in which every interruption can be told from every other:

1. append a marker that names the batch to the inbox;
2. write the batch, named, to the taken file (aside, then renamed);
3. truncate the inbox in place.

A taken file whose marker still stands in the inbox was not truncated: all up to the marker is in
the file already. A marker without its file was never taken: it is passed over.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Final

from teamd.errors import NotAMessage, StoreError
from teamd.protocol import MAX_MESSAGE_BYTES, Message, new_id
from teamd.store import files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from teamd.store.paths import TeamPaths

_MARKER_KEY: Final = "taken_as"
_MARKER: Final = re.compile(rb'{"taken_as": "([^"\\]*)"}\s*')  # alone: a message may have any key


@dataclass(frozen=True, slots=True)
class Batch:
    """Mail that was taken: to be put in its place, then given to `Mailbox.done`."""

    id: str
    messages: tuple[Message, ...]
    rejected: int = 0


EMPTY: Final = Batch("", ())


class Mailbox:
    """The mail of one member.

    Args:
        paths: the team.
        owner: whose mail it is.
        durable: whether `put` and `take` wait for the disk itself.
        max_bytes: a longer line is no message.
    """

    def __init__(
        self,
        paths: TeamPaths,
        owner: str,
        *,
        durable: bool = True,
        max_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.owner = owner
        self._inbox = paths.inbox(owner)
        self._taken = paths.taken(owner)
        self._rejected = paths.rejected(owner)
        self._durable = durable
        self._max_bytes = max_bytes

    def put(self, *messages: Message) -> None:
        """Append messages, all or none; they are safe when this returns.

        Raises:
            NotAMessage: one is too long or holds a NUL.
            StoreError: the file cannot be written; it is as it was.
        """
        lines = [message.encode() for message in messages]
        for line in lines:
            if len(line) > self._max_bytes:
                raise NotAMessage(
                    f"a message of {len(line)} bytes is over the limit of {self._max_bytes}; "
                    "put the text into a file and send its path"
                )
        files.append(self._inbox, b"".join(lines), durable=self._durable)

    def take(self) -> Batch:
        """Take all mail there is; the same again until it is `done`."""
        with files.locked(self._inbox) as fd, files.told(self._inbox):
            lines = _lines(files.read_descriptor(fd))
            before = self._read_taken()
            if before is not None:
                fresh = _behind_marker(lines, before.id)
                if fresh is None:  # truncated as it should be
                    return before
                lines = fresh  # the dead reader did not get to truncate
            messages, bad = self._sort(lines)
            kept = before.messages if before else ()
            if before is None and not messages and not bad:
                if lines:  # blank ones, dead markers: nobody is to wake for them again
                    os.ftruncate(fd, 0)
                return EMPTY
            batch = Batch(new_id(), (*kept, *messages), len(bad))
            self._set_aside(fd, batch, bad)
            return batch

    def done(self, batch: Batch) -> None:
        """Forget a batch that stands where it belongs; another one that was taken since stays."""
        with files.locked(self._inbox):
            before = self._read_taken()
            if before is not None and before.id == batch.id:
                files.remove(self._taken)

    def peek(self) -> list[Message]:
        """The mail that is under way to its owner, oldest first; nothing is changed."""
        if files.read(self._inbox) is None:
            return []
        with files.locked(self._inbox) as fd:
            lines = _lines(files.read_descriptor(fd))
            before = self._read_taken()
        if before is not None:
            behind = _behind_marker(lines, before.id)
            lines = lines if behind is None else behind
        return [*(before.messages if before else ()), *self._sort(lines)[0]]

    def leftover(self) -> tuple[Message, ...]:
        """Take only what an earlier reader took and had not done with, and forget it."""
        before = self._read_taken()
        if before is None:
            return ()
        batch = self.take()
        old, new = batch.messages[: len(before.messages)], batch.messages[len(before.messages) :]
        if new:  # what came behind the marker nobody has taken yet
            self._write_taken(Batch(new_id(), new))
        else:
            self.done(batch)
        return old

    def waiting(self) -> bool:
        """Whether there is anything to take; a look at the files' sizes, no more."""
        return any(path.exists() and path.stat().st_size for path in (self._inbox, self._taken))

    def queued(self) -> int:
        """How many messages are under way, counted by lines and without a lock: for display."""
        taken = max(0, (files.read(self._taken) or b"").count(b"\n") - 1)  # without its header
        return taken + (files.read(self._inbox) or b"").count(b"\n")

    def rejected(self) -> int:
        """How many lines were no message so far."""
        return (files.read(self._rejected) or b"").count(b"\n")

    def _set_aside(self, fd: int, batch: Batch, bad: Iterable[bytes]) -> None:
        files.write_at_end(fd, json.dumps({_MARKER_KEY: batch.id}).encode() + b"\n")
        if self._durable:
            files.sync(fd)
        if garbage := b"".join(line.rstrip(b"\n") + b"\n" for line in bad):
            files.append(self._rejected, garbage, durable=self._durable)
        self._write_taken(batch)
        os.ftruncate(fd, 0)
        if self._durable:
            files.sync(fd)

    def _write_taken(self, batch: Batch) -> None:
        header = json.dumps({"batch": batch.id}).encode() + b"\n"
        content = header + b"".join(message.encode() for message in batch.messages)
        files.replace(self._taken, content, durable=self._durable)

    def _read_taken(self) -> Batch | None:
        content = files.read(self._taken)
        if content is None:
            return None
        try:
            header, *lines = _lines(content)
            batch = str(json.loads(header)["batch"])
            return Batch(batch, tuple(Message.decode(line, to=self.owner) for line in lines))
        except (ValueError, KeyError, TypeError, NotAMessage) as error:
            raise StoreError(
                f"{self._taken} is damaged; move it away and look in it for lost mail"
            ) from error

    def _sort(self, lines: Iterable[bytes]) -> tuple[list[Message], list[bytes]]:
        """Tell messages from what is none; blank lines and markers are neither."""
        messages = []
        bad = []
        for line in lines:
            if not line.strip() or _marker(line) is not None:
                continue
            try:
                messages.append(self._decode(line))
            except NotAMessage:
                bad.append(line)
        return messages, bad

    def _decode(self, line: bytes) -> Message:
        if len(line) > self._max_bytes:
            raise NotAMessage(f"it is longer than {self._max_bytes} bytes")
        return Message.decode(line, to=self.owner)


def _lines(content: bytes) -> list[bytes]:
    return BytesIO(content).readlines()  # `splitlines` would cut at a carriage return, too


def _marker(line: bytes) -> str | None:
    found = _MARKER.fullmatch(line)
    return found[1].decode(errors="replace") if found else None


def _behind_marker(lines: list[bytes], batch: str) -> list[bytes] | None:
    """The lines behind the marker of `batch`, or `None` where it does not stand."""
    for number, line in enumerate(lines):
        if _marker(line) == batch:
            return lines[number + 1 :]
    return None
