"""A member's mail: put by anybody, taken by its owner in two steps, so that no kill loses any.

*take* notes what of the inbox is in hand, or moves it to a file of the reader's own, see
`intake`; *done* moves on once a delivery stands where it belongs. A reader that died in between
takes the same mail again, with the same ids. Lines that are no message are rejected on the way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice
from typing import Final

from teamd.errors import InboxFull, NotAMessage, Unsynced, translate_os_errors
from teamd.files import directories, files, locks
from teamd.files.file_stamp import KeptVersion
from teamd.files.files import SyncAhead
from teamd.files.open_files import KeptFile
from teamd.files.paths import TeamPaths
from teamd.mail import lines
from teamd.mail.intake import Intake
from teamd.mail.poison import Position
from teamd.mail.spool import NO_LIMIT, BatchLimit, ReadBatch, Spool
from teamd.messages import MAX_INBOX_BYTES, MAX_MESSAGE_BYTES, Message, new_id

MOST_SHOWN: Final = 10_000  # messages of one look: a flood must not fill the memory
_BLAME_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Batch:
    """A delivery: to be put in its place, then given to `Mailbox.done`.

    Attributes:
        end: where the next one begins, in the taken file or in the inbox.
        rejected: how long the file of rejected lines is with it.
        in_inbox: whether it is in the inbox still.
        behind: a sync that has to end before an id of it is written anywhere, if there is one.
    """

    id: str
    messages: tuple[Message, ...]
    end: int = 0
    rejected: int = 0
    in_inbox: bool = False
    behind: SyncAhead | None = None


EMPTY: Final = Batch("", ())


@dataclass(frozen=True, slots=True)
class _Handed:
    """The delivery that is handed over next.

    Attributes:
        position: as it is on disk now.
        before: as it was before this reader was noted in it.
        limit: how much it is.
        again: whether this reader had it in hand already.
    """

    position: Position
    before: Position
    limit: BatchLimit
    again: bool


@dataclass(eq=False)
class Mailbox:
    """The mail of one member.

    Attributes:
        paths: the team.
        owner: whose mail it is.
        durable: whether `put` and `take` wait for the disk itself.
        max_bytes: a longer line is no message.
        max_inbox_bytes: how much mail may wait for `put` to add more; one message always may.
        patience_seconds: how long `put` waits for a lock.
        granted: asked of a longer one, for what senders may have been granted since.
        folder: the inboxes', where several mailboxes are kept.
        tell: hears of each line that is rejected, and why.
        check: called before anything is taken; what it raises forbids it.
    """

    paths: TeamPaths
    owner: str
    _: KW_ONLY
    durable: bool = True
    max_bytes: int = MAX_MESSAGE_BYTES
    max_inbox_bytes: int = MAX_INBOX_BYTES
    patience_seconds: float = locks.TIMEOUT_SECONDS
    granted: Callable[[], int] = lambda: 0
    folder: KeptVersion | None = None
    tell: Callable[[str], None] = lambda _: None
    check: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._inbox = self.paths.inbox(self.owner)
        self._rejected = self.paths.rejected(self.owner)
        folder = self.folder or KeptVersion(self._inbox.parent)
        self._kept = KeptFile(self._inbox, folder)
        taken = self.paths.taken(self.owner)
        self._spool = Spool(taken, self.owner, self.max_bytes, self.granted, folder)
        room = self.max_inbox_bytes // 2
        self._intake = Intake(self._inbox, self._spool, self._rejected, self.durable, room)
        self._in_hand = ("", 0)  # the delivery that this reader has taken: batch and offset

    def create(self) -> None:
        """Make the inbox; its name is safe then, whoever made it first."""
        files.append(self._inbox, b"", durable=False)
        if self.durable:
            with translate_os_errors(self._inbox):
                directories.sync_directory(self._inbox.parent)

    def put(self, *messages: Message) -> None:
        """Append messages, all or none; they are safe when this returns.

        Raises:
            NotAMessage: one is too long or holds a NUL.
            InboxFull: too much mail waits already.
            Unsynced: the disk failed; they may arrive or not.
            StoreError: the file cannot be written; it is as it was.
        """
        try:
            self.put_lines([message.encode() for message in messages])
        except Unsynced as error:
            ids = [message.id for message in messages]
            raise Unsynced(error.path, error.why, ids=ids) from error

    def put_lines(self, encoded: Sequence[bytes]) -> None:
        """Append messages that are encoded already, as `put` does; `Unsynced` names none."""
        for line in encoded:
            if len(line) > self.max_bytes:
                raise NotAMessage(
                    f"a message of {len(line)} bytes is over the limit of {self.max_bytes}; "
                    "put the text into a file and send its path"
                )
        self._kept.append(
            b"".join(encoded),
            durable=self.durable,
            patience_seconds=self.patience_seconds,
            check=self._check_room,
        )

    def take(self, limit: BatchLimit = NO_LIMIT, *, ahead: bool = False) -> Batch:
        """Take mail; the same again until it is `done`, and what follows only after that.

        What is read under the lock is decoded without it, so that senders wait for moments only.

        Args:
            limit: the most that it may be.
            ahead: whether the caller waits for `Batch.behind`.
        """
        self.check()
        while True:  # each round gets on; the lock is free in between
            with self._kept.locked() as fd, translate_os_errors(self._inbox):
                position = self._intake.current(fd)
                if position is None:
                    return EMPTY
                if position.in_inbox and position.holder and not self._has_in_hand(position):
                    self._intake.move_out(fd, position)  # its first reader has ended
                    continue
                handed = self._hand_over(position, limit)
                raw = self._spool.read(fd, handed.position, handed.limit)
                if not raw:
                    batch = self._deliver(fd, handed, self._find(handed))
            if raw:
                batch = self._deliver_decoded(handed, self._find(handed, raw))
            if batch.messages:
                if batch.behind is not None and not ahead:
                    with translate_os_errors(self._inbox):
                        batch.behind.wait()
                return batch

    def done(self, batch: Batch) -> None:
        """Forget a delivery that stands where it belongs; what was taken since stays.

        Raises:
            StoreError: it is not forgotten, and comes again.
        """
        emptied = False
        with self._kept.locked() as fd, translate_os_errors(self._inbox):
            before = self._spool.position()
            if before is not None and before.batch == batch.id and before.at <= batch.end:
                self._intake.advance(fd, before, batch.end, batch.rejected)
            with suppress(OSError):  # it is forgotten by now
                emptied = not os.fstat(fd).st_size
        if emptied:
            # Until it is closed, ext4 has each writer wait whose mail comes next: it brings what
            # stands in a file that was emptied to the disk at its close.
            self._kept.close()

    def peek(self, most: int = MOST_SHOWN) -> list[Message]:
        """The mail that is under way to its owner, the oldest first; nothing is changed."""
        if not files.exists(self._inbox):
            return []
        with self._kept.locked() as fd, translate_os_errors(self._inbox):
            before = self._standing(fd)
            old = [] if before is None else list(self._spool.messages(before, most))
            start = 0 if before is None else before.end
            if before is not None and not before.in_inbox:
                start = lines.behind_marker(fd, before.batch) or 0
            waiting = lines.read(fd, start, max(self.max_bytes, MAX_MESSAGE_BYTES))
            fresh = b"".join(islice(waiting, max(0, most - len(old))))
        # What no marker names has another id at each look.
        found = lines.sort_all(fresh, new_id(), to=self.owner, longest=self._spool.limit)
        return [*old, *(message for _, message in found if isinstance(message, Message))]

    def leftover(self) -> tuple[Message, ...]:
        """Take only what an earlier reader took and had not done with, and forget it."""
        with self._kept.locked() as fd, translate_os_errors(self._inbox):
            before = self._standing(fd)
            if before is None:
                return ()
            old = tuple(self._spool.messages(before))
            end = before.end or files.size(self._spool.path)
            self._intake.advance(fd, before, end, before.rejected)
        return old

    def blame(self, process: int) -> bool:
        """Note that a process crashed by itself; returns whether it had a delivery in hand.

        Raises:
            StoreError: it could not be noted now; then it is not.
        """
        before = self._spool.position()
        if before is None or before.holder != process:
            return False
        with self._kept.locked(timeout_seconds=_BLAME_SECONDS):
            before = self._spool.position()
            if before is None or before.holder != process:
                return False
            self._spool.move(replace(before, crashes=before.crashes + 1))
        return True

    def waiting(self, besides: Batch = EMPTY) -> bool:
        """Return whether there is anything to take, by the files' sizes alone.

        Args:
            besides: a delivery that is not done with, and does not count.
        """
        if besides.in_inbox:
            return files.size(self._inbox) > besides.end
        return files.size(self._inbox) > 0 or files.size(self._spool.path) > besides.end

    def queued(self) -> int:
        """Count the messages that are under way, by lines and without a lock: for display."""
        return self._spool.count()

    def rejected(self) -> int:
        """Count the lines that were no message so far."""
        return lines.count(self._rejected)

    def _check_room(self, waiting: int, more: int) -> None:
        if waiting and waiting + more > self.max_inbox_bytes:
            raise InboxFull(self.owner, self.max_inbox_bytes)

    def _standing(self, fd: int) -> Position | None:
        """Return what is known of a batch that is under way, unless it is one of long ago."""
        found = self._spool.position()
        gone = found is not None and found.in_inbox and not self._intake.stands(fd, found)
        return None if gone else found

    def _has_in_hand(self, position: Position) -> bool:
        return self._in_hand == (position.batch, position.at)

    def _hand_over(self, position: Position, limit: BatchLimit) -> _Handed:
        """Note what this reader has in hand, and that it has, where that is of interest."""
        before, again = position, self._has_in_hand(position)
        if limit.wary and not again:
            position = position.handed_over(lambda: self._spool.find(position, limit).end)
        if (limit.wary or position.in_inbox) and not again:
            self._spool.move(position)
        if position.alone:
            limit = replace(limit, messages=1)
        return _Handed(position, before, limit, again)

    def _find(self, handed: _Handed, raw: bytes = b"") -> ReadBatch:
        """Decode what is handed over; a message that crashed its readers is among the refused."""
        found = self._spool.find(handed.position, handed.limit, raw)
        guilty = handed.position.verdict if handed.limit.wary else None
        if guilty and found.messages:
            culprit = (found.messages[0].encode(), guilty)
            return replace(found, messages=(), refused=(*found.refused, culprit))
        return found

    def _deliver_decoded(self, handed: _Handed, found: ReadBatch) -> Batch:
        """Deliver what was decoded without the lock; empty where another reader came between."""
        if found.messages and not found.refused and self._stays(handed.position, found):
            return self._batch(handed.position, found, handed.position.rejected)
        with self._kept.locked() as fd, translate_os_errors(self._inbox):
            if self._spool.position() == handed.position:
                return self._deliver(fd, handed, found)
        return EMPTY

    def _deliver(self, fd: int, handed: _Handed, found: ReadBatch) -> Batch:
        """Deliver it; empty where it comes once it is set aside, or was no message.

        What is no message is kept, and told of once.
        """
        position = handed.position
        if not self._stays(position, found):
            self._intake.move_out(fd, handed.before)
            return EMPTY
        rejected = position.rejected
        if found.refused:
            bad = (line for line, _ in found.refused)
            rejected = lines.reject(bad, self._rejected, at=rejected, durable=self.durable)
            for _, why in () if handed.again else found.refused:
                self.tell(why)
        if not found.messages:
            self._intake.advance(fd, position, found.end, rejected)
            return EMPTY
        return self._batch(position, found, rejected)

    def _stays(self, position: Position, found: ReadBatch) -> bool:
        """Return whether a delivery can stay in the inbox, if it is there.

        It can where a reader knows all of it again after a power cut, by its ids.
        """
        if not position.in_inbox:
            return True
        if found.refused:
            return False
        return self._intake.has_named(position) or all(one.id_given for one in found.messages)

    def _batch(self, position: Position, found: ReadBatch, rejected: int) -> Batch:
        self._in_hand = (position.batch, position.at)
        behind = self._intake.sync_of(position.batch) if position.in_inbox else None
        return Batch(position.batch, found.messages, found.end, rejected, position.in_inbox, behind)
