"""`teamctl send`: put a message into an inbox, whether or not teamd runs."""

from __future__ import annotations

import click

from teamctl import output
from teamctl.completion import boxes
from teamctl.input import text_or_stdin
from teamd.commandline import Choice, pass_choice, team_options
from teamd.errors import ExitCode
from teamd.protocol import LEAD, Message, new_id
from teamd.store.post import Post


@click.command()
@click.argument("name", shell_complete=boxes)
@click.argument("text")
@click.option("--from", "sender", default=LEAD, show_default=True, help="Whom it is from.")
@click.option("--type", "kind", default="message", show_default=True, help="The message's type.")
@click.option("--id", "message_id", help="The same id twice is one message: for a safe retry.")
@click.option("--summary", help="What it is about, in a few words.")
@team_options
@pass_choice
def command(
    choice: Choice,
    name: str,
    text: str,
    *,
    sender: str,
    kind: str,
    message_id: str | None,
    summary: str | None,
) -> int:
    """Send TEXT to NAME; a TEXT of - is read from standard input.

    It is safe on disk when this returns, and delivered when NAME looks into its inbox.
    """
    paths = choice.existing()
    mail = choice.settings(paths).mail
    post = Post(paths, durable=mail.durability == "disk", max_bytes=mail.max_message_bytes)
    message = Message(
        id=message_id or new_id(),
        type=kind,
        sender=sender,
        to=name,
        content=text_or_stdin(text),
        extra={} if summary is None else {"summary": summary},
    )
    sent = post.send(message)
    click.echo(f"sent to {sent.to}")
    if sent.warning:
        output.warn(sent.warning)
    return ExitCode.DONE
