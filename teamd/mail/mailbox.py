"""The mail of one member: anyone appends messages, and its owner takes them in two steps.

`take` moves mail to a file of the reader's own, see `spool`. `done` forgets a delivery once its
messages are stored in the conversation. If a reader ends in between, the next one takes the same
mail with the same ids. Lines that are not messages are rejected by `take`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

from teamd.errors import InboxFull, NotAMessage, Unsynced, translate_os_errors
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.mail import lines
from teamd.mail.spool import NO_LIMIT, BatchLimit, Position, ReadBatch, Spool
from teamd.messages import MAX_INBOX_BYTES, MAX_MESSAGE_BYTES, Message, new_id

MOST_SHOWN: Final = 10_000  # messages in one `peek`, to bound memory use
_BLAME_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Batch:
    """A delivery: store its messages, then pass it to `Mailbox.done`.

    Attributes:
        end: the offset of the next delivery in the spool file.
        rejected: the size of the file of rejected lines after this delivery.
    """

    id: str
    messages: tuple[Message, ...]
    end: int = 0
    rejected: int = 0


EMPTY: Final = Batch("", ())


@dataclass(eq=False)
class Mailbox:
    """The mail of one member.

    Attributes:
        paths: the team.
        owner: the member.
        durable: whether `put` and `take` wait for the disk.
        max_bytes: a longer line is not a message.
        max_inbox_bytes: the size up to which `put` adds mail; an empty inbox accepts any message.
        patience_seconds: how long `put` waits for a lock.
        granted: returns the longest line that newer settings may have allowed senders.
        tell: called with the reason for each rejected line.
        check: called before mail is taken; it raises to prevent that.
    """

    paths: TeamPaths
    owner: str
    _: KW_ONLY
    durable: bool = True
    max_bytes: int = MAX_MESSAGE_BYTES
    max_inbox_bytes: int = MAX_INBOX_BYTES
    patience_seconds: float = locks.TIMEOUT_SECONDS
    granted: Callable[[], int] = lambda: 0
    tell: Callable[[str], None] = lambda _: None
    check: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._inbox = self.paths.inbox(self.owner)
        self._in_hand = ("", 0)  # batch and offset of the delivery that this reader has taken

    @cached_property
    def _spool(self) -> Spool:
        """The reader's file; a sender, which makes a mailbox for each message, needs none."""
        return Spool(
            self.paths,
            self.owner,
            durable=self.durable,
            max_bytes=self.max_bytes,
            granted=self.granted,
        )

    @property
    def _rejected(self) -> Path:
        return self.paths.rejected(self.owner)

    def create(self) -> None:
        """Create the inbox and make its name durable, whoever created it first.

        Another program may write to it before the first `put`, which then assumes a durable name.
        """
        files.append(self._inbox, b"", durable=False)
        if self.durable:
            with translate_os_errors(self._inbox):
                directories.sync_directory(self._inbox.parent)

    def put(self, *messages: Message) -> None:
        """Append messages, all or none; they are durable when this returns.

        Raises:
            NotAMessage: a message is too long or contains a NUL.
            InboxFull: too much mail is waiting already.
            Unsynced: the disk failed; the messages may or may not arrive.
            StoreError: the file cannot be written; it is unchanged.
        """
        try:
            self.put_lines([message.encode() for message in messages])
        except Unsynced as error:
            ids = [message.id for message in messages]
            raise Unsynced(error.path, error.why, ids=ids) from error

    def put_lines(self, encoded: Sequence[bytes]) -> None:
        """Append encoded messages, as `put` does; `Unsynced` has no ids here."""
        for line in encoded:
            if len(line) > self.max_bytes:
                raise NotAMessage(
                    f"a message of {len(line)} bytes is over the limit of {self.max_bytes}; "
                    "put the text into a file and send its path"
                )
        files.append(
            self._inbox,
            b"".join(encoded),
            durable=self.durable,
            patience_seconds=self.patience_seconds,
            check=self._check_room,
        )

    def take(self, limit: BatchLimit = NO_LIMIT) -> Batch:
        """Return the next mail, or the same mail again until it is `done`."""
        self.check()
        while True:  # each round makes progress; the lock is released in between
            with self._locked() as fd:
                position = self._spool.current(fd)
                if position is None:
                    return EMPTY
                batch = self._deliver(fd, position, limit)
            if batch.messages:
                return batch

    def done(self, batch: Batch) -> None:
        """Forget a delivery whose messages are stored; mail taken since then is kept.

        Raises:
            StoreError: the delivery is not forgotten and will be repeated.
        """
        with self._locked() as fd:
            before = self._spool.position()
            if before is not None and before.batch == batch.id and before.at <= batch.end:
                self._spool.advance(fd, before, batch.end, batch.rejected)

    def peek(self, most: int = MOST_SHOWN) -> list[Message]:
        """Return undelivered mail, oldest first, without changing anything."""
        if not files.exists(self._inbox):
            return []
        with self._locked() as fd:
            before = self._spool.position()
            old, start = [], 0
            if before is not None:
                old = list(self._spool.messages(before, most))
                start = lines.behind_marker(fd, before.batch) or 0
            waiting = lines.read(fd, start, max(self.max_bytes, MAX_MESSAGE_BYTES))
            fresh = b"".join(islice(waiting, max(0, most - len(old))))
        # A line without an id or a marker after it gets another id on each call.
        found = lines.sort_all(fresh, new_id(), to=self.owner, longest=self._spool.longest_line)
        return [*old, *(message for _, message in found if isinstance(message, Message))]

    def leftover(self) -> tuple[Message, ...]:
        """Take only mail that an earlier reader took and did not finish, and forget it."""
        with self._locked() as fd:
            before = self._spool.position()
            if before is None:
                return ()
            old = tuple(self._spool.messages(before))
            self._spool.advance(fd, before, files.size(self._spool.path), before.rejected)
        return old

    def blame(self, process: int) -> bool:
        """Record a process's own crash; return whether it was holding a delivery.

        Raises:
            StoreError: the crash could not be recorded.
        """
        before = self._spool.position()
        if before is None or before.holder != process:
            return False
        with locks.locked(self._inbox, timeout_seconds=_BLAME_SECONDS):
            before = self._spool.position()
            if before is None or before.holder != process:
                return False
            self._spool.move(replace(before, crashes=before.crashes + 1))
        return True

    def waiting(self) -> bool:
        """Return whether there is mail to take, judging by file sizes alone."""
        return files.size(self._inbox) > 0 or files.size(self._spool.path) > 0

    def queued(self) -> int:
        """Count the undelivered messages by lines, without a lock, for display."""
        return self._spool.count()

    def rejected(self) -> int:
        return lines.count(self._rejected)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with locks.locked(self._inbox) as fd, translate_os_errors(self._inbox):
            yield fd

    def _check_room(self, waiting: int, more: int) -> None:
        if waiting and waiting + more > self.max_inbox_bytes:
            raise InboxFull(self.owner, self.max_inbox_bytes)

    def _deliver(self, fd: int, position: Position, limit: BatchLimit) -> Batch:
        """Deliver from a position on; return an empty batch if only rejected lines were read."""
        again = self._in_hand == (position.batch, position.at)
        if limit.wary and not again:
            before = position
            position = before.handed_over(lambda: self._spool.find(before, limit).end)
            self._spool.move(position)
        if position.alone:
            limit = replace(limit, messages=1)
        found = self._find(position, limit)
        rejected = position.rejected
        if found.refused:
            bad = (line for line, _ in found.refused)
            rejected = lines.reject(bad, self._rejected, at=rejected, durable=self.durable)
            for _, why in () if again else found.refused:
                self.tell(why)
        if not found.messages:
            self._spool.advance(fd, position, found.end, rejected)
            return EMPTY
        self._in_hand = (position.batch, position.at)
        return Batch(position.batch, found.messages, found.end, rejected)

    def _find(self, position: Position, limit: BatchLimit) -> ReadBatch:
        """Read a delivery; a message that crashed its readers is moved to the refused lines."""
        found = self._spool.find(position, limit)
        guilty = position.verdict if limit.wary else None
        if guilty and found.messages:
            culprit = (found.messages[0].encode(), guilty)
            return replace(found, messages=(), refused=(*found.refused, culprit))
        return found
