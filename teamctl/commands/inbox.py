"""`teamctl inbox`: shows and takes the person's mail, and shows a teammate's mail."""

from __future__ import annotations

from functools import partial

import click

from teamctl import tail
from teamctl.arguments import boxes
from teamctl.mail.inbox_reader import InboxLooker, InboxReader, describe_request
from teamctl.mail.router import team_post
from teamctl.render.output import MailFormat
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions


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
    box = post.inbox(person if name is None else name)
    own = box.owner == person
    note = partial(describe_request, paths)
    boxes = post.persons if own else lambda: [box]
    nothing = not follow and not any(one.waiting() for one in boxes())
    only_looks = peek or not own or nothing
    if own:
        paths.note_seen()
    reader = InboxLooker(boxes, note) if only_looks else InboxReader(boxes, paths, note)
    if follow:
        form = MailFormat.LINES if as_json else MailFormat.TEXT

        def look() -> None:
            reader.read(form)

        tail.follow(look, paths.inboxes)
    elif not reader.read(MailFormat.DOCUMENT if as_json else MailFormat.TEXT) and not as_json:
        click.echo("no new mail")
