"""`teamctl transcript`: a conversation as a person reads it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from teamctl import output
from teamctl.completion import teammates
from teamctl.following import lines
from teamd.commandline import Choice, pass_choice, team_options
from teamd.errors import ExitCode, TeamError
from teamd.protocol import USER
from teamd.store.roster import Roster
from teamd.transcript.records import (
    CallAnswered,
    Delivered,
    NoteAdded,
    Opened,
    Replied,
    ResultsCleared,
    Summarised,
    TurnEnded,
    decode_lines,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.transcript.records import Record

_LONGEST_RESULT = 12  # lines
_OPENED = "— a new conversation —"
_CLEARED = "— its context was filling up: it sees old results of tools no more —"


@click.command()
@click.argument("name", shell_complete=teammates)
@click.option("--follow", "-f", is_flag=True, help="Go on showing what is added.")
@click.option("--full", is_flag=True, help="Show long tool results whole.")
@output.json_option
@team_options
@pass_choice
def command(choice: Choice, name: str, *, follow: bool, full: bool, as_json: bool) -> int:
    """Show the conversation of NAME, or with `user` the mail that you have read."""
    if follow and as_json:
        raise click.UsageError("--follow never ends and --json is one document: take one of them")
    paths = choice.existing()
    name = USER if name.lower() == USER else Roster(paths).read().get(name).name
    path = paths.transcript(name)
    if not path.exists() and not follow:
        raise TeamError(f"{name} has no conversation yet")
    found = lines(path, last=None, follow=follow)
    if as_json:  # records just as they are, also those of a later version
        output.print_json({"name": name, "records": [*filter(None, map(parse, found))]})
        return ExitCode.DONE
    for record in decode_lines(found):
        for line in _shown(record, name, full=full):
            click.echo(line)
    return ExitCode.DONE


def _shown(record: Record, name: str, *, full: bool) -> Iterator[str]:  # noqa: C901
    when = click.style(_time(record), dim=True)
    match record:
        case Opened():
            yield f"{when} {click.style(_OPENED, dim=True)}"
        case ResultsCleared():
            yield f"{when} {click.style(_CLEARED, dim=True)}"
        case Delivered():
            yield from _mail(record, name, when)
        case Replied():
            yield from _reply(record, name, when)
        case CallAnswered():
            colour = "red" if record.is_error else None
            text = output.plain(record.content)
            yield from _indented(text if full else _clipped(text), colour, "    ")
        case NoteAdded():
            yield f"{when} {click.style(output.plain(record.text), dim=True)}"
        case Summarised():
            yield from _summary(record, when)
        case TurnEnded() if record.outcome != "end_turn":
            outcome = f"— {record.outcome} — {output.plain(record.text)}"
            yield f"{when} {click.style(outcome, fg='yellow')}"


def _mail(delivered: Delivered, name: str, when: str) -> Iterator[str]:
    for message in delivered.messages:
        arrow = f"{output.plain(message.sender)} → {name}"
        yield f"{when} {click.style(arrow, fg='cyan', bold=True)}"
        yield from _indented(output.plain(message.content))


def _reply(reply: Replied, name: str, when: str) -> Iterator[str]:
    yield f"{when} {click.style(name, fg='green', bold=True)}"
    for block in reply.content:
        if block["type"] == "text":
            yield from _indented(output.plain(block["text"]))
        elif block["type"] == "tool_use":
            call = f"{block['name']} {_arguments(block['input'])}"
            yield from _indented(call, "blue")


def _summary(made: Summarised, when: str) -> Iterator[str]:
    """What stands for everything above, in the eyes of the model; it is all kept here."""
    words = "— its context was full: from here on it sees this summary of what was before —"
    yield f"{when} {click.style(words, fg='yellow')}"
    yield from _indented(output.plain(made.text or "(it could not be summarised)"))
    yield from _indented(output.plain(made.restated), "blue")


def _arguments(given: dict[str, Any]) -> str:
    if len(given) == 1:
        return output.plain(str(next(iter(given.values()))))
    return " ".join(f"{key}={output.plain(json.dumps(v))}" for key, v in given.items())


def _indented(text: str, colour: str | None = None, indent: str = "  ") -> Iterator[str]:
    for line in text.splitlines():
        yield indent + click.style(line, fg=colour)


def _clipped(text: str) -> str:
    found = text.splitlines()
    if len(found) <= _LONGEST_RESULT:
        return text
    more = len(found) - _LONGEST_RESULT
    return "\n".join([*found[:_LONGEST_RESULT], f"… {more} more lines; --full shows them"])


def _time(record: Record) -> str:
    return datetime.fromtimestamp(record.time).astimezone().strftime("%H:%M:%S")
