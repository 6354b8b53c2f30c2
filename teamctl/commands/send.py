"""`teamctl send` and `broadcast`: send mail, whether or not teamd runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from teamctl.arguments import not_empty, receivers, text_or_stdin, timeout_option
from teamctl.mail.router import team_post
from teamctl.render import output
from teamd.command_line.options import TextCommand, team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import DeadlinePassed, StoreError, TeamError
from teamd.files import pidfile
from teamd.files.watch import wait_for
from teamd.mail.routing import MailRouter, Sent, broadcast_far
from teamd.messages import Message, new_id

_sender_option = click.option("--from", "sender", help="The sender  [default: you].")


@click.command(cls=TextCommand)
@click.argument("name", shell_complete=receivers)
@click.argument("text")
@_sender_option
@click.option("--type", default="message", show_default=True, help="The message's type.")
@click.option("--id", help="Makes a retry safe: one text with one id is one message.")
@click.option("--summary", help="The subject, in a few words.")
@click.option("--wait", is_flag=True, help="Return once the message is in NAME's conversation.")
@timeout_option
@output.json_option
@team_options
def command(
    choice: TeamOptions,
    name: str,
    text: str,
    *,
    wait: bool,
    timeout: float,
    as_json: bool,
    **facts: Any,
) -> None:
    """Send TEXT to NAME, whether or not teamd runs. If TEXT is -, it comes from standard input.

    The message is safely on disk when the command returns. NAME gets it when it next reads its
    inbox; --wait waits for that. --json prints the message's id, and `teamctl trace ID` shows
    where it is. NAME@TEAM@HOST is on another host: the message is on its way there when the
    command returns, and arrives once.
    """
    post = team_post(choice)
    _check_wait(post, name, wait=wait)
    retry = facts["id"] is not None
    facts = {**facts, "id": facts["id"] or new_id(), "sender": facts["sender"] or post.person()}
    summary = facts.pop("summary")
    content = not_empty(text_or_stdin(text))
    extra = {} if summary is None else {"summary": summary}
    message = Message(**facts, to=name, content=content, extra=extra)
    if retry:
        post.check_id(message)
    sent = post.send(message)
    choice.done = f"the message is sent to {sent.to}"
    if not as_json:
        output.echo(f"sent to {sent.to}")
    if sent.warning:
        output.warn(sent.warning)
    elif not wait:
        _warn_of_rest(post, sent.to)
    if wait:
        _await_delivery(post, sent, message, timeout)
    if as_json:
        output.print_json({"id": message.id, "to": sent.to, "delivered": wait})
    elif wait:
        output.echo(f"delivered to {sent.to}")


def _check_wait(post: MailRouter, name: str, *, wait: bool) -> None:
    """Refuse --wait for a receiver on another host, whose conversation is not visible here."""
    if wait and post.far(name) is not None:
        why = "only the host of its receiver knows when it is read"
        raise click.UsageError(f"--wait cannot be used for {name}: {why}")


def _await_delivery(post: MailRouter, sent: Sent, message: Message, seconds: float) -> None:
    """Wait until a message is in its receiver's conversation.

    Raises:
        DeadlinePassed: the message is not there within this many seconds.
    """
    from teamctl.mail.receipts import DeliveryWatch  # noqa: PLC0415 -- only for --wait

    there, to = post.at(sent.to)
    receipt = DeliveryWatch(there, replace(message, to=to), told=sent.warning)
    if wait_for(there.paths.transcripts, receipt.look, timeout_seconds=seconds) is None:
        why = f"{sent.to} has not taken it within {seconds:g} s"
        hint = f"`teamctl trace {message.id}` shows where it is"
        raise DeadlinePassed(f"{why}; the message is safe and will be delivered: {hint}")


@click.command(cls=TextCommand)
@click.argument("text")
@_sender_option
@click.option("--all-hosts", is_flag=True, help="Send it to those on other hosts as well.")
@output.json_option
@team_options
def broadcast(
    choice: TeamOptions, text: str, *, sender: str | None, all_hosts: bool, as_json: bool
) -> None:
    """Send TEXT to every teammate except the sender and those that are shut down.

    If TEXT is -, the command reads it from standard input. With --all-hosts, it names the hosts
    that it cannot reach now; the message is not kept for those.
    """
    post = team_post(choice)
    sender = sender or post.person()
    content = not_empty(text_or_stdin(text))
    message = Message(type="broadcast", sender=sender, to="all", content=content)
    if all_hosts:
        post.other_hosts()  # fails before the first send if there are no other hosts
    sent = post.broadcast(message)
    if all_hosts:
        sent = [*sent, *_broadcast_far(post, message)]
    choice.done = "the message is sent"
    if not sent:
        raise TeamError("there is nobody to send to; `teamctl team` shows who is in the team")
    to = [one.to for one in sent]
    output.print_either(f"sent to {', '.join(to)}", {"id": message.id, "to": to}, as_json=as_json)
    _warn_of_rest(post, *(one.to for one in sent))


def _broadcast_far(post: MailRouter, message: Message) -> tuple[Sent, ...]:
    """Send to the members of other hosts, and warn about each that was missed."""
    found = broadcast_far(post, message)
    for whom, why in found.missed.items():
        output.warn(f"{whom} was missed: {why}")
    return found.sent


def _warn_of_rest(post: MailRouter, *receivers: str) -> None:
    """Warn that mail waits if no teamd runs to deliver it to agents of this team."""
    with suppress(StoreError):  # the message is sent, whatever this finds
        agents = [to for to in receivers if to != post.person() and "@" not in to]
        if agents and pidfile.is_teamd_down(post.paths):
            why = "no teamd runs, so the message waits; `teamd start` delivers it"
            output.warn(post.paths.add_team_option(why))
