"""A conversation for a person: each text below its speaker, and each result below its call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from teamctl.render import output
from teamctl.render.layout import Layout
from teamd.command_line import terminal
from teamd.messages import USER
from teamd.transcript import records
from teamd.transcript.live import thinking_of
from teamd.transcript.records import find_trouble

_INDENT: Final = "  "
_INNER: Final = "    "
_RESULT_ROWS: Final = 12
_EXACT_SECONDS: Final = 60
_MAIN: Final = ("command", "path", "to", "name", "task_id", "job_id")  # the main argument of a call
_MAIL: Final = ("send_message", "broadcast")
# The argument of a tool that is a text for a person or a teammate.
_LETTERS: Final = {**dict.fromkeys(_MAIL, "content"), "spawn_teammate": "prompt", "task": "prompt"}
_ASIDES: Final = {
    records.Opened: "— a new conversation —",
    records.ResultsCleared: "— its context was filling up: it sees old results of tools no more —",
}
_SUMMARY: Final = "— its context was full: from here on it sees this summary of what was before —"


@dataclass(slots=True)
class _OpenCalls:
    """The open calls of one conversation.

    Attributes:
        calls: the calls without a result, by id.
        begun: when each started, in seconds since the epoch.
    """

    calls: dict[str, records.Block] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)


class TranscriptView:
    """Shows the records of one conversation, or of several that alternate, one record at a time.

    Args:
        layout: wraps the lines.
        full: whether long results of tools are shown in full.
        live: whether a call is shown when it starts, not with its result.
    """

    def __init__(self, layout: Layout, *, full: bool, live: bool = False) -> None:
        self._layout = layout
        self._full = full
        self._live = live
        self._speakers: dict[str, _OpenCalls] = {}
        self._shown = ""  # the speaker of the last text
        self._called = ""  # the last call, while nothing else was shown since
        self._day = ""

    def show(self, name: str, record: records.Record) -> Iterator[str]:
        """Yield the lines that show a record.

        Args:
            name: the teammate whose conversation it is.
            record: the next record of that conversation.
        """
        speaker = self._speakers.setdefault(name, _OpenCalls())
        match record:
            case records.CallStarted():
                speaker.begun[record.tool_use_id] = record.time
                if self._live:
                    yield from self._call(name, speaker, record.tool_use_id, record.time)
            case records.CallAnswered():
                yield from self._call(name, speaker, record.tool_use_id, record.time)
                yield from self._result(speaker, record)
            case _:
                for line in self._told(name, speaker, record):
                    yield from self._date(record.time)
                    self._shown, self._called = name, ""
                    yield line

    def note(self, moment: float, text: str) -> Iterator[str]:
        """Yield the lines of a note that is not part of a conversation."""
        self._shown = self._called = ""
        yield from self._line(moment, text, fg="yellow")

    def finish(self) -> Iterator[str]:
        """Yield the lines that show the calls without a result."""
        for name, speaker in self._speakers.items():
            for call_id in list(speaker.calls):
                begun = speaker.begun.get(call_id)
                yield from self._call(name, speaker, call_id, begun or 0.0)
                since = "" if begun is None else f", begun {output.ago(begun)} ago"
                yield f"{_INDENT}→ no result yet{since}"

    def _told(  # noqa: C901 -- one case per kind of record
        self, name: str, speaker: _OpenCalls, record: records.Record
    ) -> Iterator[str]:
        """Yield the lines of a record that is not a call or its result."""
        match record:
            case records.Opened() | records.ResultsCleared():
                yield from self._line(record.time, _ASIDES[type(record)], dim=True)
            case records.Delivered():
                for message in record.messages:
                    about = f" — {message.summary}" if message.summary else ""
                    arrow = f"✉ {message.sender} → {name}{output.kind_of(message)}{about}"
                    yield from self._line(record.time, arrow, fg="cyan", bold=True)
                    yield from self._said(message.content, by_person=message.sender == USER)
            case records.Replied():
                yield from self._line(record.time, name, fg="green", bold=True)
                for block in record.content:
                    if (thinking := thinking_of(block)).strip():
                        yield from self._layout.lines(f"thinking: {thinking}", _INDENT, dim=True)
                    elif block["type"] == "text":
                        yield from self._said(block["text"])
                speaker.calls = {call["id"]: call for call in record.calls}
            case records.NoteAdded():
                yield from self._line(record.time, record.text, dim=True)
            case records.Summarised():
                yield from self._line(record.time, _SUMMARY, fg="yellow")
                yield from self._said(record.text or "(it could not be summarised)")
                yield from self._layout.lines(record.restated, _INDENT, "blue")
            case records.MailHeld():
                held = f"— it only talked: mail of {', '.join(record.senders)} waits —"
                yield from self._line(record.time, held, fg="yellow")
            case records.TurnEnded() if record.outcome != "end_turn":
                ended = f"— {record.outcome} — {record.text}".rstrip()
                yield from self._line(record.time, ended, fg="yellow")

    def _date(self, moment: float) -> Iterator[str]:
        """Yield a line with the date if it differs from the last one; today is not shown."""
        day = time.strftime("%Y-%m-%d", time.localtime(moment))
        known, self._day = self._day or time.strftime("%Y-%m-%d"), day
        if day != known and moment:
            yield terminal.style(f"— {day} —", dim=True)

    def _line(self, moment: float, text: str, **style: Any) -> Iterator[str]:
        when = output.clock(moment)
        before = f"{terminal.style(when, dim=True)} "
        for line in self._layout.wrap(text, len(when) + 1):
            yield before + terminal.style(line, **style)
            before = _INDENT

    def _said(self, text: str, *, by_person: bool = False) -> Iterator[str]:
        if by_person:
            yield from self._layout.lines(text, _INDENT)
        else:
            yield from self._layout.markdown(text, _INDENT)

    def _call(self, name: str, speaker: _OpenCalls, call_id: str, moment: float) -> Iterator[str]:
        """Yield the lines that show a call, unless it was shown last."""
        if self._called == call_id:
            return
        if self._shown != name:
            yield from self._date(moment)
            yield from self._line(moment, name, fg="green", bold=True)
        self._shown, self._called = name, call_id
        if (call := speaker.calls.get(call_id)) is not None:
            yield from self._asked(str(call["name"]), call["input"])

    def _asked(self, tool: str, given: Any) -> Iterator[str]:
        """Yield the lines that show the arguments of a call."""
        given = dict(given) if isinstance(given, dict) else {"input": given}
        change = None
        if tool == "edit_file" and {"old_text", "new_text"} <= given.keys():
            change = str(given.pop("old_text")), str(given.pop("new_text"))
        elif tool == "write_file" and "content" in given:
            change = "", str(given.pop("content"))
        letter = given.pop(_LETTERS[tool], None) if tool in _LETTERS else None
        indent = _INDENT
        for line in self._layout.wrap(_head(tool, given, letter), len(_INNER)):
            yield indent + terminal.style(line, fg="blue")
            indent = _INNER
        if letter is not None:
            yield from self._layout.markdown(str(letter), _INNER)
        if change is not None:
            yield from self._clipped(self._layout.diff(*change, _INNER))

    def _result(self, speaker: _OpenCalls, record: records.CallAnswered) -> Iterator[str]:
        speaker.calls.pop(record.tool_use_id, None)
        begun = speaker.begun.pop(record.tool_use_id, None)
        took = None if begun is None else _took(record.time - begun)
        if wrong := "FAILED" if record.is_error else find_trouble(record):
            word, colour = wrong if took is None else f"{wrong} after {took}", "red"
        else:
            word, colour = took or "done", None
        yield terminal.style(f"{_INDENT}→ {word}", fg=colour, dim=colour is None)
        lines = output.plain(record.content).splitlines()
        yield from self._clipped(lines, lambda one: self._layout.lines(one or " ", _INNER, colour))

    def _clipped(
        self, lines: Iterable[str], rows_of: Callable[[str], Iterable[str]] = lambda row: (row,)
    ) -> Iterator[str]:
        """Yield the rows of lines on the screen, at most a fixed number unless `full`."""
        room, more = _RESULT_ROWS, 0
        for line in lines:
            rows = list(rows_of(line)) if self._full or room else []
            yield from rows if self._full else rows[:room]
            more += not rows or len(rows) > room
            room = max(0, room - len(rows))
        if more and not self._full:
            yield f"{_INNER}… {more} more lines; --full shows them"


def _head(tool: str, given: dict[str, Any], letter: object) -> str:
    """Return the first line of a call; mail has its receiver and its subject there."""
    if letter is None or tool not in _MAIL:
        return f"{tool}: {_arguments(given)}"
    to, summary = given.get("to", "all"), given.get("summary")
    return f"✉ to {to}" + (f" — {summary}" if summary else "")


def _arguments(given: dict[str, Any]) -> str:
    """Return the arguments of a call: the main one first, all others by name."""
    known: list[str] = [key for key in (*_MAIN, *list(given)[: len(given) == 1]) if key in given]
    main = known[0] if known else None
    first = [] if main is None else [str(given[main])]
    return " ".join(first + [f"{key}={_value(given[key])}" for key in given if key != main])


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _took(seconds: float) -> str:
    if seconds >= _EXACT_SECONDS:
        return output.duration(seconds)
    return f"{max(0.0, seconds):.2g} s"
