"""Makes untrusted text safe for terminals, and for programs that read JSON.

Control characters move the cursor, set the title or fill the clipboard. Format characters hide
words or reverse their order.
"""

from __future__ import annotations

import os
import re
import unicodedata
from typing import Final

import click

_UNUSUAL: Final = re.compile(r"[^\n\t -~]")
_KINDS: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control, format, half a pair, breaks
# Zero-width non-joiner and joiner: Persian words and many emoji are spelt with them.
_JOINERS: Final = frozenset({"\u200c", "\u200d"})
_LAST_BYTE: Final = 0xFF


def style(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """Style a text as `click.style` does, but without a color if NO_COLOR is set (no-color.org)."""
    fg = None if os.environ.get("NO_COLOR") else fg
    return click.style(text, fg=fg, bold=bold or None, dim=dim or None)


def plain(text: str) -> str:
    r"""Return text with control characters escaped, such as `\x1b`; newlines and tabs stay."""
    return _UNUSUAL.sub(_shown, text)


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
