"""`teamctl transcript`: a conversation as a person reads it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from teamctl import output
from teamctl.completion import teammates
from teamctl.following import lines
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode, TeamError
from teamd.protocol import USER, Message
from teamd.store.roster import Roster
from teamd.store.transcript import Record, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_RESULT = 12  # lines
_ASIDES = {
    "opened": "— a new conversation —",
    "cleared": "— its context was filling up: it sees old results of tools no more —",
}


@click.command()
@click.argument("name", shell_complete=teammates)
@click.option("--follow", "-f", is_flag=True, help="Keep showing new entries.")
@click.option("--full", is_flag=True, help="Show long tool results in full.")
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
    found = (parse(line) for line in lines(path, last=None, follow=follow))
    records = (record for record in found if record is not None)
    if as_json:
        output.print_json({"name": name, "records": list(records)})
        return ExitCode.DONE
    for record in records:
        for line in _shown(record, name, full=full):
            click.echo(line)
    return ExitCode.DONE


def _shown(record: Record, name: str, *, full: bool) -> Iterator[str]:
    when = click.style(_time(record), dim=True)
    match record.get("record"):
        case "opened" | "cleared" as kind:
            yield f"{when} {click.style(_ASIDES[kind], dim=True)}"
        case "mail":
            yield from _mail(record, name, when)
        case "reply":
            yield from _reply(record, name, when)
        case "result":
            colour = "red" if record["is_error"] else None
            text = output.plain(record["content"])
            yield from _indented(text if full else _clipped(text), colour, "    ")
        case "note":
            yield f"{when} {click.style(output.plain(record['text']), dim=True)}"
        case "summary":
            yield from _summary(record, when)
        case "ended" if record["outcome"] != "end_turn":
            outcome = f"— {record['outcome']} — {output.plain(record['text'])}"
            yield f"{when} {click.style(outcome, fg='yellow')}"


def _mail(record: Record, name: str, when: str) -> Iterator[str]:
    for fields in record["messages"]:
        message = Message.decode(json.dumps(fields).encode(), to=name)
        arrow = f"{output.plain(message.sender)} → {name}"
        yield f"{when} {click.style(arrow, fg='cyan', bold=True)}"
        yield from _indented(output.plain(message.content))


def _reply(record: Record, name: str, when: str) -> Iterator[str]:
    yield f"{when} {click.style(name, fg='green', bold=True)}"
    for block in record["content"]:
        if block["type"] == "text":
            yield from _indented(output.plain(block["text"]))
        elif block["type"] == "tool_use":
            call = f"{block['name']} {_arguments(block['input'])}"
            yield from _indented(call, "blue")


def _summary(record: Record, when: str) -> Iterator[str]:
    """What stands for everything above, in the eyes of the model; it is all kept here."""
    words = "— its context was full: from here on it sees this summary of what was before —"
    yield f"{when} {click.style(words, fg='yellow')}"
    yield from _indented(output.plain(record["text"] or "(it could not be summarised)"))
    yield from _indented(output.plain(record["restated"]), "blue")


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
    return datetime.fromtimestamp(record.get("time", 0.0)).astimezone().strftime("%H:%M:%S")
