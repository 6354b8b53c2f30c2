"""The person's mail: taken once it has been shown, and kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from teamctl import output
from teamctl.output import MailFormat
from teamctl.tail import GrowingFile, Identity, identity, not_yet_seen
from teamd.errors import LockTimeout, TeamError
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import MOST_SHOWN, Batch, Mailbox
from teamd.mail.spool import BatchLimit
from teamd.messages import USER, Message, moment_of
from teamd.transcript.file import Transcript, decode
from teamd.transcript.records import Delivered, mail_in

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
