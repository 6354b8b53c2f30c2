"""`teamctl broadcast`: one message to everybody."""

from __future__ import annotations

import click

from teamctl.input import text_or_stdin
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode, TeamError
from teamd.mail.routing import Post
from teamd.messages import Message


@click.command()
@click.argument("text")
@click.option("--from", "sender", help="The sender  [default: you].")
@team_options
@pass_choice
def command(choice: Choice, text: str, sender: str | None) -> int:
    """Send TEXT to every teammate except the sender and those that are shut down.

    If TEXT is -, the command reads it from standard input.
    """
    paths = choice.existing()
    mail = choice.settings(paths).mail
    post = Post(paths, durable=mail.durability == "disk", max_bytes=mail.max_message_bytes)
    sent = post.broadcast(
        Message(
            type="broadcast", sender=sender or post.person(), to="all", content=text_or_stdin(text)
        )
    )
    choice.done = "the message is sent"
    if not sent:
        raise TeamError("there is nobody to send to; `teamctl team` shows who is in the team")
    click.echo(f"sent to {', '.join(one.to for one in sent)}")
    return ExitCode.DONE
