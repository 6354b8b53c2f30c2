"""The person's mail: taken once it has been shown, and kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from teamctl.render import output
from teamctl.render.output import MailFormat
from teamctl.tail import GrowingFile
from teamd.errors import LockTimeout, TeamError
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import MOST_SHOWN, Batch, Mailbox
from teamd.mail.spool import BatchLimit
from teamd.messages import USER, Message, moment_of
from teamd.transcript.file import Transcript, decode
from teamd.transcript.records import Delivered, mail_in

Identity: TypeAlias = tuple[str, str, str]
# Asked at each look: where an agent begins to lead, or ends, the person's mail goes elsewhere.
Boxes = Callable[[], Sequence[Mailbox]]
Note = Callable[[Message], str]  # see `output.show_messages`

# What is shown, and then taken, at a time: a flood must not fill the memory.
_BATCH: Final = BatchLimit(messages=MOST_SHOWN, bytes=1 << 24)


class InboxReader:
    """Shows the person's mail, and takes it once it has been shown."""

    def __init__(self, boxes: Boxes, paths: TeamPaths, note: Note) -> None:
        self._boxes = boxes
        self._note = note
        self._turn = paths.reading
        self._kept = Transcript(paths.transcript(USER))
        self._growing = GrowingFile(self._kept.path)
        self._known: set[Identity] = set()

    def read(self, form: MailFormat) -> int:
        """Show what has come, and take it; returns how many messages that is."""
        # What a killed reader had in hand comes alone, and the rest only once that is done with,
        # as does what is too much at a time: for the one document of --json that is the next
        # call's, unless there was nothing new in it.
        try:
            with locks.locked(self._turn):
                count = 0
                while batches := self._take():
                    count += self._show_and_keep(batches, form)
                    if count and form is MailFormat.DOCUMENT:
                        break
                if not count:
                    output.show_messages([], form)
                return count
        except LockTimeout as error:
            if error.path != self._turn:
                raise
            why = "another `teamctl inbox` is showing your mail and has not been read to its end"
            raise TeamError(f"{why}; end it, or look with --peek") from error

    def _take(self) -> list[tuple[Mailbox, Batch]]:
        found = [(box, box.take(_BATCH)) for box in self._boxes()]
        return [(box, batch) for box, batch in found if batch.messages]

    def _show_and_keep(self, batches: list[tuple[Mailbox, Batch]], form: MailFormat) -> int:
        """Show what is new in some batches, keep it, and forget them; return how much that was."""
        fresh = [self._fresh(batch.messages) for _, batch in batches]
        if shown := [message for messages in fresh for message in messages]:
            output.show_messages(shown, form, self._note)
        sys.stdout.flush()  # a reader that has gone is noticed here, before anything is taken
        for (box, batch), messages in zip(batches, fresh, strict=True):
            if messages:
                taken = moment_of(batch.id)
                kept = Delivered(messages=tuple(messages), taken=taken, time=time.time())
                self._kept.append(kept)
            else:  # all kept, by one that may have been killed before they were safe
                self._kept.make_durable()
            box.done(batch)
        return len(shown)

    def _fresh(self, messages: Sequence[Message]) -> list[Message]:
        """Those that were not read before; a repeated send is one message."""
        if messages:
            for line in self._growing.lines():
                self._known.update(map(identity, mail_in(decode(line))))
        return not_yet_seen(messages, self._known)


class Unseen:
    """Mail goes in at its end and out at its front, and keeps its order in between."""

    def __init__(self) -> None:
        self._last: Sequence[Message] = ()
        self._seen: set[Identity] = set()

    def among(self, now: Sequence[Message]) -> list[Message]:
        """Those that have come since the last look; a repeated send is one message.

        A foreign line without an id gets another one at each look, until it is taken. Such lines
        are known by their place: what has stayed is where the queue of the last look ends.
        """
        stayed = next(k for k in range(len(self._last) + 1) if _begins(now, self._last[k:]))
        known = len(self._last) - stayed
        self._last = tuple(now)
        self._seen.update(map(identity, now[:known]))
        fresh = not_yet_seen(now[known:], self._seen)
        self._seen.update(map(identity, fresh))
        return fresh


def not_yet_seen(messages: Sequence[Message], seen: set[Identity]) -> list[Message]:
    """Return those whose identity is not among the seen ones; a repeated send is one message."""
    fresh: dict[Identity, Message] = {}
    for message in messages:
        if identity(message) not in seen:
            fresh.setdefault(identity(message), message)
    return list(fresh.values())


def _begins(now: Sequence[Message], rest: Sequence[Message]) -> bool:
    return len(rest) <= len(now) and all(map(_may_be, rest, now))


def _may_be(before: Message, now: Message) -> bool:
    """Return whether a message may be the one that was seen before."""
    if before.id_given:
        return before.is_same_as(now)
    return (before.sender, before.type, before.content) == (now.sender, now.type, now.content)


def identity(message: Message) -> Identity:
    """Return what tells a message from every other, as `Message.is_same_as` compares."""
    return message.id, message.sender, message.content
