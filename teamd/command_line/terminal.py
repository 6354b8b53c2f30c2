"""Makes untrusted text safe for terminals, and for programs that read JSON.

Control characters move the cursor, set the title or fill the clipboard. Format characters hide
words or reverse their order.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Iterator
from shutil import get_terminal_size
from typing import Final, TextIO

import click

_UNUSUAL: Final = re.compile(r"[^\n\t -~]")
_KINDS: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control, format, half a pair, breaks
# Zero-width non-joiner and joiner: Persian words and many emoji are spelt with them.
_JOINERS: Final = frozenset({"\u200c", "\u200d"})
_LAST_BYTE: Final = 0xFF
_COMMAND: Final = re.compile(r"`[^`\n]*`")
_HELD: Final = "\0"  # a blank in a command; no escaped text contains it


def style(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """Style a text as `click.style` does, but without a color if NO_COLOR is set (no-color.org)."""
    fg = None if os.environ.get("NO_COLOR") else fg
    return click.style(text, fg=fg, bold=bold or None, dim=dim or None)


def plain(text: str) -> str:
    r"""Return text with control characters escaped, such as `\x1b`; newlines and tabs stay."""
    return _UNUSUAL.sub(_shown, text)


def echo(text: str, *, indent: str = "", err: bool = False) -> None:
    """Print a text with control characters escaped; on a terminal, lines break between words."""
    click.echo(fit(text, sys.stderr if err else sys.stdout, indent), err=err)


def fit(text: str, stream: TextIO, indent: str = "") -> str:
    """Return a text as `echo` prints it to a stream."""
    width = get_terminal_size().columns if stream.isatty() else None
    return "\n".join(wrap(plain(text), width, indent))


def wrap(text: str, width: int | None, indent: str = "") -> Iterator[str]:
    """Yield the lines of an escaped text, indented and without blanks at their ends.

    A command in backquotes stays in one line, so that it can be copied, and so does a long word.

    Args:
        text: the text.
        width: the most columns of a line; `None` breaks none.
        indent: stands before each line.
    """
    held = _COMMAND.sub(lambda found: found[0].replace(" ", _HELD), text)
    for line in held.splitlines() or [""]:
        margin = indent + line[: len(line) - len(line.lstrip())]
        parts = [indent + line.rstrip()]
        if width is not None and len(parts[0]) > width:
            parts = textwrap.wrap(
                line.strip(),
                width,
                initial_indent=margin,
                subsequent_indent=margin,
                break_long_words=False,
                break_on_hyphens=False,
                replace_whitespace=False,
            )
        yield from (part.rstrip().replace(_HELD, " ") for part in parts)


def escape_json(document: str) -> str:
    """Return a JSON document with such characters escaped; it means the same."""
    return _UNUSUAL.sub(_escaped, document)


def _shown(found: re.Match[str]) -> str:
    character = found[0]
    if not _obeyed(character):
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number <= _LAST_BYTE else f"\\u{number:04x}"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if not _obeyed(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs)


def _obeyed(character: str) -> bool:
    """Return whether a terminal might act on a character, or not show it."""
    return character not in _JOINERS and unicodedata.category(character) in _KINDS
