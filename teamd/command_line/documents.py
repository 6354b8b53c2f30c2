"""JSON documents of commands, for programs: results on standard output, errors on standard error.

A warning is `{"warning": "the sentence"}` on a line of standard error.

Times are ISO 8601 text with a zone, in UTC. A key whose value was a number in older versions has a
second one beside it, `KEY_unix`, with that number of seconds since the epoch.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import click

from teamd.command_line import terminal

_TIMES: Final = frozenset(
    (
        *("answered", "asked", "created", "deadline", "ended", "next", "since", "started"),
        *("status_since", "time", "timestamp", "until", "updated", "when"),
    )
)
_FOREIGN: Final = frozenset({"content", "input"})  # texts and inputs of others
_COMMAND: Final = re.compile(r"`((?:teamctl|teamd) [^`]+)`")

json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document."
)


def print_json(document: Any) -> None:
    _print(json.dumps(with_iso_times(document), ensure_ascii=False, indent=1))


def print_json_line(document: Any) -> None:
    """Print one document on one line, for programs that follow."""
    _print(json.dumps(with_iso_times(document), ensure_ascii=False))


def print_either(text: str, document: Any, *, as_json: bool) -> None:
    """Print a text for a person, or a document for a program."""
    if as_json:
        print_json(document)
    else:
        terminal.echo(text)


def print_error(sentence: str) -> None:
    """Print an error for a program, with the first command that the sentence names."""
    named = _COMMAND.search(sentence)
    error = {"error": sentence, "command": None if named is None else named[1]}
    _print(json.dumps(error, ensure_ascii=False), err=True)


def print_warning(sentence: str) -> None:
    """Print a warning for a program, on one line."""
    _print(json.dumps({"warning": sentence}, ensure_ascii=False), err=True)


def json_is_asked() -> bool:
    """Return whether this program was called with `--json`, even if its arguments are wrong."""
    words = sys.argv[1:]
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def with_iso_times(value: Any) -> Any:
    """Return a document with its times as text, and the numbers under `KEY_unix`."""
    if isinstance(value, Mapping):
        return dict(pair for key, part in value.items() for pair in _dated(key, part))
    if isinstance(value, list | tuple):
        return [with_iso_times(part) for part in value]
    return value


def _dated(key: str, value: Any) -> tuple[tuple[str, Any], ...]:
    if key in _FOREIGN:
        return ((key, value),)
    if key in _TIMES and isinstance(value, int | float) and not isinstance(value, bool):
        return (key, _iso(value)), (f"{key}_unix", value)
    return ((key, with_iso_times(value)),)


def _iso(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # another program wrote it into a file
        return None


def _print(text: str, *, err: bool = False) -> None:
    click.echo(terminal.escape_json(text), err=err)
