"""Keys and values as a sentence shows them: short, on one line, harmless to a terminal."""

from __future__ import annotations

import re
from typing import Final

BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
SHOWN_CHARACTERS: Final = 60
SHOWN_NUMBER: Final = 10**18


def quoted(text: str) -> str:
    """The text in double quotes, cut after 60 characters, what a terminal obeys escaped."""
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    escaped = cut.replace("\\", r"\\").replace('"', r"\"")
    return f'"{printable(escaped)}"'


def printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal obeys."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def bare(key: str) -> str:
    """A key as it stands in a file."""
    return key if BARE_KEY.fullmatch(key) else quoted(key)


def shown(value: object) -> str:
    """A value of TOML in a few words."""
    match value:
        case str():
            return quoted(value)
        case bool():
            return str(value).lower()
        case int() if abs(value) >= SHOWN_NUMBER:  # Python may refuse to spell it
            return "a number of that size"
        case int() | float():
            return str(value)
    nouns: dict[type, str] = {list: "a list", dict: "a table"}
    return nouns.get(type(value), "a date or a time")
