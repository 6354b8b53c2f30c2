"""Records of conversations as text for a person: whole, clipped, or as one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from teamctl import output
from teamd import terminal
from teamd.transcript import records

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST: Final = 100  # characters of a line
_LINES: Final = 3
_RESULT_LINES: Final = 12
_ASIDES: Final = {
    records.Opened: "— a new conversation —",
    records.ResultsCleared: "— its context was filling up: it sees old results of tools no more —",
}
_SUMMARY: Final = "— its context was full: from here on it sees this summary of what was before —"


def render_record(record: records.Record, name: str, *, full: bool) -> Iterator[str]:  # noqa: C901
    """Yield the lines that show a record whole.

    Args:
        record: of the conversation of `name`.
        name: the teammate's.
        full: whether long results of tools are shown to their end.
    """
    when = terminal.style(output.clock(record.time), dim=True)
    match record:
        case records.Opened() | records.ResultsCleared():
            yield f"{when} {terminal.style(_ASIDES[type(record)], dim=True)}"
        case records.Delivered():
            for message in record.messages:
                arrow = f"{output.plain(message.sender)} → {name}"
                yield f"{when} {terminal.style(arrow, fg='cyan', bold=True)}"
                yield from _indent(message.content)
        case records.Replied():
            yield f"{when} {terminal.style(name, fg='green', bold=True)}"
            yield from _render_content(record.content)
        case records.CallAnswered():
            text = output.plain(record.content)
            shown = text if full else _clip_result(text)
            yield from _indent(shown, "red" if record.is_error else None, "    ")
        case records.NoteAdded():
            yield f"{when} {terminal.style(output.plain(record.text), dim=True)}"
        case records.Summarised():
            yield f"{when} {terminal.style(_SUMMARY, fg='yellow')}"
            yield from _indent(record.text or "(it could not be summarised)")
            yield from _indent(record.restated, "blue")
        case records.MailHeld():
            senders = output.plain(", ".join(record.senders))
            held = f"— it only talked: mail of {senders} waits —"
            yield f"{when} {terminal.style(held, fg='yellow')}"
        case records.TurnEnded() if record.outcome != "end_turn":
            outcome = output.plain(f"— {record.outcome} — {record.text}")
            yield f"{when} {terminal.style(outcome, fg='yellow')}"


def _render_content(content: list[records.Block]) -> Iterator[str]:
    for block in content:
        if block["type"] == "text":
            yield from _indent(block["text"])
        elif block["type"] == "tool_use":
            yield from _indent(f"{block['name']} {_arguments(block['input'])}", "blue")


def explain_end(name: str, ended: records.TurnEnded) -> str | None:
    """Return why a turn ended otherwise than by itself, in a sentence; `None` where it did not."""
    used_up = f"{name} used up the model calls of one wake; send it a message to let it go on"
    reasons = {
        records.PAUSED: f"{name} is paused: {ended.text}",
        records.LIMIT: used_up,
        "refusal": f"the model of {name} refused to go on; ask differently",
        records.INTERRUPTED: f"the turn of {name} was interrupted",
    }
    return reasons.get(ended.outcome)


def clip_line(text: str) -> str:
    """Return a text in one line, as far as there is room for it."""
    return _cut(" ".join(output.plain(text).splitlines()), _LONGEST)


def clip_first_line(text: str) -> str:
    """Return the first line of a text, as far as there is room for it."""
    return _cut(next(iter(output.plain(text).splitlines()), ""), _LONGEST)


def clip_beginning(text: str, *, lines: int = _LINES, rest: str) -> str:
    """Return the first lines of a text; they may be long, but not all together.

    Args:
        text: from elsewhere.
        lines: at the most.
        rest: where all of it can be read; told if it is cut.
    """
    found = [one.rstrip() for one in output.plain(text).strip().splitlines()]
    kept = "\n".join(found[:lines])
    cut = _cut(kept, _LONGEST * lines)
    if cut == kept and len(found) > lines:
        cut += "…"
    return cut if cut == kept else f"{cut} ({rest})"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest].rstrip()}…"


def _clip_result(text: str) -> str:
    found = text.splitlines()
    if len(found) <= _RESULT_LINES:
        return text
    more = len(found) - _RESULT_LINES
    return "\n".join([*found[:_RESULT_LINES], f"… {more} more lines; --full shows them"])


def _arguments(given: dict[str, Any]) -> str:
    if len(given) == 1:
        return str(next(iter(given.values())))
    return " ".join(f"{key}={json.dumps(value)}" for key, value in given.items())


def _indent(text: str, colour: str | None = None, indent: str = "  ") -> Iterator[str]:
    for line in output.plain(text).splitlines():
        yield indent + terminal.style(line, fg=colour)
