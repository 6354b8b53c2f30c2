"""The demo as a person sees it: a line for each thing that somebody does."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from teamctl import output
from teamd.transcript.records import CallAnswered, Replied, TurnEnded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.transcript.records import Record

_VERBS: Final = {
    "write_file": ("writes", "path"),
    "edit_file": ("edits", "path"),
    "read_file": ("reads", "path"),
    "bash": ("runs", "command"),
}
_FAILURES: Final = ("[exit status", "[killed", "[ended after")  # what the bash tool notes of an end


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened.

    Attributes:
        moment: when, in seconds since the epoch.
        who: whose doing it is.
        colour: of `what`.
    """

    moment: float
    who: str
    what: str
    colour: str | None = None


class Teller:
    """Prints events, each on one line, aligned, and cut where the terminal ends.

    Attributes:
        colours: of the names.
    """

    def __init__(self) -> None:
        self.colours: dict[str, str] = {}
        self._begun = time.time()
        self._width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    @property
    def seconds(self) -> float:
        """The time since it began."""
        return time.time() - self._begun

    def tell(self, event: Event) -> None:
        """Print it."""
        when = f"{max(0.0, event.moment - self._begun):4.1f}s "
        who = f"{event.who:<5} "
        what = _cut(_one_line(event.what), self._width and self._width - len(when) - len(who))
        name = click.style(who, fg=self.colours.get(event.who), bold=True)
        click.echo(click.style(when, dim=True) + name + click.style(what, fg=event.colour))

    def lead(self, what: str) -> None:
        """Print what the lead, who is the person, does right now."""
        self.tell(Event(moment=time.time(), who="lead", what=what))


class ConversationEvents:
    """One teammate's transcript, told as events."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._commands: set[str] = set()

    def events(self, record: Record) -> Iterator[Event]:
        """Yield what happened by a record."""
        match record:
            case Replied():
                for what in map(self._part, record.content):
                    yield Event(moment=record.time, who=self._name, what=what)
            case CallAnswered() if record.is_error or record.tool_use_id in self._commands:
                text = record.content
                bad = record.is_error or any(note in text for note in _FAILURES)
                what = f"sees {_excerpt(text)}"
                colour = "red" if bad else "green"
                yield Event(moment=record.time, who=self._name, what=what, colour=colour)
            case TurnEnded() if record.outcome != "end_turn":
                what = f"{record.outcome}: {record.text}"
                yield Event(moment=record.time, who=self._name, what=what, colour="red")

    def _part(self, block: dict[str, Any]) -> str:
        if block["type"] == "text":
            return f"“{block['text']}”"
        given = block["input"]
        if block["name"] == "send_message":
            return f"→ {given.get('to')}: {given.get('summary') or given.get('content')}"
        if block["name"] == "bash":
            self._commands.add(block["id"])
        verb, key = _VERBS.get(block["name"], (f"uses {block['name']}", ""))
        return f"{verb} {given.get(key, '')}"


def _excerpt(text: str) -> str:
    """The last line of an output, and the first that names an error."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("[")]
    error = next((line for line in lines if "Error: " in line), "")
    last = lines[-1] if lines else text
    return f"{last}: {error}" if error and error != last else last


def _one_line(text: str) -> str:
    return " ".join(output.plain(text).split())


def _cut(text: str, room: int | None) -> str:
    return text if room is None or len(text) <= room else text[: max(0, room - 1)] + "…"
