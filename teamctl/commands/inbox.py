"""`teamctl inbox`: the person's mail is taken once it is shown; a teammate's is only looked at."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from teamctl import output
from teamctl.arguments import boxes, team_post
from teamctl.tail import GrowingFile, Identity, Unseen, identity, not_yet_seen
from teamd.cli import Choice, team_options
from teamd.errors import LockTimeout, TeamError
from teamd.files import locks
from teamd.files.watch import wait_for
from teamd.mail.mailbox import MOST_SHOWN
from teamd.mail.spool import BatchLimit
from teamd.messages import USER, Message, moment_of
from teamd.transcript.file import Transcript, decode
from teamd.transcript.records import Delivered, mail_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from teamd.files.paths import TeamPaths
    from teamd.mail.mailbox import Mailbox

    # Asked at each look: where an agent begins to lead, or ends, the person's mail goes elsewhere.
    Boxes = Callable[[], Sequence[Mailbox]]

# What is shown, and then taken, at a time: a flood must not fill the memory.
_BATCH: Final = BatchLimit(messages=MOST_SHOWN, bytes=1 << 24)


@click.command()
@click.argument("name", required=False, shell_complete=boxes)
@click.option("--peek", is_flag=True, help="Show your mail without taking it.")
@click.option("--follow", "-f", is_flag=True, help="Keep showing mail as it arrives.")
@output.json_option
@team_options
def command(choice: Choice, name: str | None, *, peek: bool, follow: bool, as_json: bool) -> None:
    """Read your own mail, or look at the mail of teammate NAME.

    Mail that you have read moves to transcripts/user.jsonl. A teammate's mail stays where it is.
    """
    if follow and as_json:
        raise click.UsageError("--follow never ends and --json is one document: take one of them")
    post = team_post(choice)
    paths = post.paths
    person = post.person()
    box = post.inbox(name or person)
    own = box.owner == person
    boxes = post.persons if own else lambda: [box]
    reader = _Looker(boxes) if peek or not own else _Taker(boxes, paths)

    def look() -> None:
        reader.read(as_json=False)

    if follow:
        wait_for(paths.inboxes, look, timeout_seconds=math.inf)
    elif not reader.read(as_json=as_json) and not as_json:
        click.echo("no new mail")


class _Looker:
    """Shows mail and leaves it; each message once."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._unseen = Unseen()

    def read(self, *, as_json: bool) -> int:
        messages = self._unseen.among([m for box in self._boxes() for m in box.peek()])
        _show(messages, as_json=as_json)
        return len(messages)


class _Taker:
    """Shows the person's mail, and takes it once it has been shown."""

    def __init__(self, boxes: Boxes, paths: TeamPaths) -> None:
        self._boxes = boxes
        self._turn = paths.reading
        self._kept = Transcript(paths.transcript(USER))
        self._growing = GrowingFile(self._kept.path)
        self._known: set[Identity] = set()

    def read(self, *, as_json: bool) -> int:
        # What a killed reader had in hand comes alone, and the rest only once that is done with,
        # as does what is too much at a time: for the one document of --json that is the next
        # call's.
        try:
            with locks.locked(self._turn):
                count = found = self._read(as_json=as_json)
                while found and not as_json and any(box.waiting() for box in self._boxes()):
                    count += (found := self._read(as_json=False))
                return count
        except LockTimeout as error:
            if error.path != self._turn:
                raise
            why = "another `teamctl inbox` is showing your mail and has not been read to its end"
            raise TeamError(f"{why}; end it, or look with --peek") from error

    def _read(self, *, as_json: bool) -> int:
        batches = [(box, box.take(_BATCH)) for box in self._boxes()]
        fresh = [self._fresh(batch.messages) for _, batch in batches]
        _show([m for messages in fresh for m in messages], as_json=as_json)
        sys.stdout.flush()  # a reader that has gone is noticed here, before anything is taken
        for (box, batch), messages in zip(batches, fresh, strict=True):
            if messages:
                taken = moment_of(batch.id)
                kept = Delivered(messages=tuple(messages), taken=taken, time=time.time())
                self._kept.append(kept)
            elif batch.messages:  # all kept, by one that may have been killed before they were safe
                self._kept.make_durable()
            box.done(batch)
        return sum(map(len, fresh))

    def _fresh(self, messages: Sequence[Message]) -> list[Message]:
        """Those that were not read before; a repeated send is one message."""
        if messages:
            for line in self._growing.lines():
                self._known.update(map(identity, mail_in(decode(line))))
        return not_yet_seen(messages, self._known)


def _show(messages: Sequence[Message], *, as_json: bool) -> None:
    if as_json:
        output.print_json({"messages": [message.to_json() for message in messages]})
        return
    for message in messages:
        output.show_message(message)
