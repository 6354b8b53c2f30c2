"""The person's mail: it is shown first, then taken and kept, with notes on its requests."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from teamctl.mail.router import all_approvals
from teamctl.render import output
from teamctl.render.output import MailFormat, Note
from teamctl.tail import GrowingFile
from teamd.approvals.approval import Approval, Verdict
from teamd.errors import LockTimeout, TeamError
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import MOST_SHOWN, Batch, Mailbox
from teamd.mail.spool import BatchLimit
from teamd.messages import USER, Message, moment_of
from teamd.transcript.file import Transcript, decode
from teamd.transcript.records import Delivered, mail_in

Identity: TypeAlias = tuple[str, str, str]
# Called at each look, because another inbox gets the person's mail when a lead starts or ends.
Boxes = Callable[[], Sequence[Mailbox]]
DescribeRequest = Callable[[Message], Note]

# Mail is shown and taken in batches, so that a flood does not fill the memory.
_BATCH: Final = BatchLimit(messages=MOST_SHOWN, bytes=1 << 24)


class InboxReader:
    """Shows the person's mail, and then takes it."""

    def __init__(self, boxes: Boxes, paths: TeamPaths, note: DescribeRequest) -> None:
        self._boxes = boxes
        self._note = note
        self._turn = paths.reading
        self._kept = Transcript(paths.transcript(USER))
        self._growing = GrowingFile(self._kept.path)
        self._known: set[Identity] = set()

    def read(self, form: MailFormat) -> int:
        """Show the new mail, and take it; return the number of messages."""
        # The batch of a killed reader comes alone, and a large inbox comes in several batches. The
        # single document of --json contains the first batch with new mail; the next call shows
        # more.
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
        """Show the new messages of some batches and store them as read; return their number."""
        fresh = [self._fresh(batch.messages) for _, batch in batches]
        if shown := [message for messages in fresh for message in messages]:
            output.show_messages(shown, form, self._note)
        sys.stdout.flush()  # a closed pipe is noticed here, before any mail is taken
        for (box, batch), messages in zip(batches, fresh, strict=True):
            if messages:
                taken = moment_of(batch.id)
                kept = Delivered(messages=tuple(messages), taken=taken, time=time.time())
                self._kept.append(kept)
            else:  # a reader recorded them, and may have been killed before the sync
                self._kept.make_durable()
            box.done(batch)
        return len(shown)

    def _fresh(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that were not read before; a repeated send is one message."""
        if messages:
            for line in self._growing.lines():
                self._known.update(map(identity, mail_in(decode(line))))
        return not_yet_seen(messages, self._known)


class InboxLooker:
    """Shows mail without taking it; each message once."""

    def __init__(self, boxes: Boxes, note: DescribeRequest) -> None:
        self._boxes = boxes
        self._note = note
        self._unseen = NewMailFinder()

    def read(self, form: MailFormat) -> int:
        """Show the mail that was not shown before; return the number of messages."""
        messages = self._unseen.among([m for box in self._boxes() for m in box.peek()])
        output.show_messages(messages, form, self._note)
        return len(messages)


class NewMailFinder:
    """Finds the new messages in a mail queue, which grows at the end and is taken at the front."""

    def __init__(self) -> None:
        self._last: Sequence[Message] = ()
        self._seen: set[Identity] = set()

    def among(self, now: Sequence[Message]) -> list[Message]:
        """Return the messages since the last look; a repeated send is one message.

        A foreign line without an id gets a new one at each look, until it is taken. Such lines are
        recognized by their place after the messages that remain from the last look.
        """
        stayed = next(k for k in range(len(self._last) + 1) if _begins(now, self._last[k:]))
        known = len(self._last) - stayed
        self._last = tuple(now)
        self._seen.update(map(identity, now[:known]))
        fresh = not_yet_seen(now[known:], self._seen)
        self._seen.update(map(identity, fresh))
        return fresh


def not_yet_seen(messages: Sequence[Message], seen: set[Identity]) -> list[Message]:
    """Return the messages whose identity is new; a repeated send is one message."""
    fresh: dict[Identity, Message] = {}
    for message in messages:
        if identity(message) not in seen:
            fresh.setdefault(identity(message), message)
    return list(fresh.values())


def _begins(now: Sequence[Message], rest: Sequence[Message]) -> bool:
    return len(rest) <= len(now) and all(map(_may_be, rest, now))


def _may_be(before: Message, now: Message) -> bool:
    """Return whether two messages may be the same one."""
    if before.id_given:
        return before.is_same_as(now)
    return (before.sender, before.type, before.content) == (now.sender, now.type, now.content)


def identity(message: Message) -> Identity:
    """Return the fields that `Message.is_same_as` compares."""
    return message.id, message.sender, message.content


def describe_request(paths: TeamPaths, message: Message) -> Note:
    """Return the outcome of a message's request, or the commands that answer it.

    It is empty if the person cannot answer, or if the message names the commands.
    """
    if ended := describe_end(paths, message):
        return Note(ended, replaces_text=True)
    approval = _find(paths, message)
    if approval is None:
        return Note()
    approve = paths.add_team_option(f"`teamctl approve {approval.id}`")
    if approve in message.content or not approval.may_be_answered_by(USER):
        return Note()
    reject = paths.add_team_option(f"`teamctl reject {approval.id} --reason …`")
    return Note(f"{approve} approves it, {reject} rejects it")


def describe_end(paths: TeamPaths, message: Message) -> str:
    """Return how the request of a message ended.

    It is empty while the request is open, and for a message whose request is unknown.
    """
    approval = _find(paths, message)
    if approval is None:
        return ""
    if approval.overdue or approval.status is Verdict.EXPIRED:
        return "is no longer open: nobody waits for its answer"
    return "" if approval.is_open else _answer(approval)


def _find(paths: TeamPaths, message: Message) -> Approval | None:
    with suppress(TeamError):  # a damaged approval must not keep the person from reading the mail
        return all_approvals(paths).of_message(message)
    return None


def _answer(approval: Approval) -> str:
    who = "you" if approval.answered_by == USER else approval.answered_by
    by = f" by {who}" if who else ""
    ago = "" if approval.answered is None else f" {output.ago(approval.answered)} ago"
    why = " ".join(approval.reason.split())
    return f"was {approval.status} already{by}{ago}" + (f": {why}" if why else "")
