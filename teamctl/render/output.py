"""Printing: mail and sentences for a person, JSON for programs, and short forms of figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Final, NamedTuple

import click

from teamd.budget.account import Account
from teamd.command_line import documents, terminal
from teamd.messages import Message, needs_answer

STATUS_COLOURS: Final = {
    "working": "green",
    "idle": "cyan",
    "waiting": "bright_yellow",
    "pausing": "yellow",
    "stopped": "yellow",
    "paused": "yellow",
    "failed": "red",
    "shutdown": "bright_black",
}
_THOUSAND: Final = 1000
_HUNDRED: Final = 100

plain: Final = terminal.plain  # for every text from outside the program
echo: Final = terminal.echo
json_option: Final = documents.json_option
print_json: Final = documents.print_json
print_json_line: Final = documents.print_json_line
print_either: Final = documents.print_either


def warn(text: str) -> None:
    """Print a warning on standard error; with `--json` as `{"warning": "..."}` on one line."""
    if documents.json_is_asked():
        documents.print_warning(text)
        return
    said = terminal.fit(f"warning: {text}", sys.stderr).removeprefix("warning: ")
    click.echo(terminal.style("warning: ", fg="yellow") + said, err=True)


class MailFormat(Enum):
    """How to print mail: for a person, as one document, or as one document per message."""

    TEXT = auto()
    DOCUMENT = auto()
    LINES = auto()


class Note(NamedTuple):
    """A line about a request, shown below its heading or in place of its text."""

    line: str = ""
    replaces_text: bool = False


def show_messages(
    messages: Sequence[Message],
    form: MailFormat,
    note: Callable[[Message], Note] = lambda _: Note(),
) -> None:
    """Print mail.

    Args:
        messages: the messages in order.
        form: the format.
        note: returns a line for the person about a request; called for requests only.
    """
    if form is MailFormat.DOCUMENT:
        print_json({"messages": [message.to_json() for message in messages]})
        return
    for message in messages:
        if form is MailFormat.LINES:
            print_json_line(message.to_json())
        else:
            asks = needs_answer(message.type)
            show_message(message, note(message) if asks else Note())


def show_message(message: Message, note: Note = Note()) -> None:  # noqa: B008 -- it is immutable
    """Print one message for a person."""
    when = terminal.style(clock(message.timestamp), dim=True)
    about = f" — {plain(message.summary)}" if message.summary else ""
    sender = terminal.style(plain(message.sender), bold=True)
    heading = f"{when} {sender}{kind_of(message)}{about}"
    if note.replaces_text:
        click.echo(f"{heading}: {plain(note.line)}")
        return
    click.echo(heading)
    if note.line:
        click.echo(f"  {terminal.style(plain(note.line), bold=True)}")
    terminal.echo(message.content, indent="  ")


def kind_of(message: Message) -> str:
    """Return the type of a message unless it is an ordinary one, and the state of its request."""
    kind = "" if message.type == "message" else f" [{plain(message.type)}]"
    return kind + _of_request(message)


def _of_request(message: Message) -> str:
    """Return how a request was answered, and its id for `teamctl approve`."""
    request, approve = message.extra.get("request_id"), message.extra.get("approve")
    verdict = (" approved" if approve else " rejected") if isinstance(approve, bool) else ""
    if not isinstance(request, str):
        return verdict
    team = message.sender.partition("@")[2]
    elsewhere = f" (of team {plain(team)}: `teamctl --team {plain(team)} approve`)" if team else ""
    return f"{verdict} {plain(request)}" + (elsewhere if approve is None else "")


def clock(seconds: float) -> str:
    """Return a time since the epoch as `17:05:09`, in local time."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def moment(seconds: float) -> str:
    """Return a time since the epoch as `2026-03-24 17:05:09.123`, in local time."""
    local = datetime.fromtimestamp(seconds).astimezone()
    return local.replace(tzinfo=None).isoformat(" ", timespec="milliseconds")


def duration(seconds: float) -> str:
    """Return seconds as `42s`, `12m`, `3h05m` or `4d02h`."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if not minutes:
        return f"{whole}s"
    if not hours:
        return f"{minutes}m"
    if not days:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{days}d{hours % 24:02d}h"


def ago(moment: float | None) -> str:
    """Return the time since a moment, given in seconds since the epoch."""
    return "-" if moment is None else duration(time.time() - moment)


def cost(account: Account) -> str:
    """Return a cost as `$12.30` or `$0.0042`; `?` if unknown, `>$1.00` if only a part is known."""
    usd = account.known_usd
    if usd is None:
        return "?"
    digits = 2 if usd >= 1 or not usd else 4
    return f"{'>' if account.unpriced_calls else ''}${usd:.{digits}f}"


def count(number: float) -> str:
    """Return a number in at most five characters: `950`, `12.3k`, `4.5M`."""
    units = iter("kMG")
    unit = ""
    while number >= _THOUSAND and unit != "G":
        number, unit = number / _THOUSAND, next(units)
    return f"{number:.{1 if unit and number < _HUNDRED else 0}f}{unit}"
