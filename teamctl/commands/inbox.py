"""`teamctl inbox`: shows and takes the person's mail, and shows a teammate's mail."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import click

from teamctl.arguments import boxes
from teamctl.mail.inbox_reader import NewMailFinder
from teamctl.mail.request_notes import describe_request
from teamctl.mail.router import team_post
from teamctl.render import output
from teamctl.render.output import MailFormat
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.messages import Message

if TYPE_CHECKING:
    from teamctl.mail.inbox_reader import Boxes, InboxReader, Note


@click.command()
@click.argument("name", required=False, shell_complete=boxes)
@click.option("--peek", is_flag=True, help="Show your mail without taking it.")
@click.option("--follow", "-f", is_flag=True, help="Keep showing mail as it arrives.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document; with -f, one message a line."
)
@team_options
def command(
    choice: TeamOptions, name: str | None, *, peek: bool, follow: bool, as_json: bool
) -> None:
    """Read your own mail, or look at the mail of teammate NAME.

    Mail that you have read moves to transcripts/user.jsonl. A teammate's mail stays where it is.
    """
    post = team_post(choice)
    paths = post.paths
    person = post.person()
    box = post.inbox(name or person)
    own = box.owner == person
    note = partial(_note, paths)
    boxes = post.persons if own else lambda: [box]
    nothing = not follow and not any(one.waiting() for one in boxes())
    reader = _Looker(boxes, note) if peek or not own or nothing else _taker(boxes, paths, note)
    if follow:
        _follow(reader, paths, MailFormat.LINES if as_json else MailFormat.TEXT)
    elif not reader.read(MailFormat.DOCUMENT if as_json else MailFormat.TEXT) and not as_json:
        click.echo("no new mail")


def _note(paths: TeamPaths, message: Message) -> str:
    return describe_request(paths, message)


def _taker(boxes: Boxes, paths: TeamPaths, note: Note) -> InboxReader:
    from teamctl.mail.inbox_reader import InboxReader  # noqa: PLC0415 -- records, only to show mail

    return InboxReader(boxes, paths, note)


def _follow(reader: _Looker | InboxReader, paths: TeamPaths, form: MailFormat) -> None:
    def look() -> None:
        reader.read(form)

    wait_for(paths.inboxes, look, timeout_seconds=math.inf)


class _Looker:
    """Shows mail without taking it; each message once."""

    def __init__(self, boxes: Boxes, note: Note) -> None:
        self._boxes = boxes
        self._note = note
        self._unseen = NewMailFinder()

    def read(self, form: MailFormat) -> int:
        messages = self._unseen.among([m for box in self._boxes() for m in box.peek()])
        output.show_messages(messages, form, self._note)
        return len(messages)
