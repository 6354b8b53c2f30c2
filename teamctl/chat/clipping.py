"""Long texts in the chat: how they begin, and where the rest can be read."""

from __future__ import annotations

from typing import Final

from teamctl import output

_LONGEST: Final = 100  # characters of a line
_LINES: Final = 3


def line(text: str) -> str:
    """A text in one line, as far as there is room for it."""
    return _cut(" ".join(output.plain(text).splitlines()), _LONGEST)


def first_line(text: str) -> str:
    """The first line of a text, as far as there is room for it."""
    return _cut(next(iter(output.plain(text).splitlines()), ""), _LONGEST)


def beginning(text: str, *, lines: int = _LINES, rest: str) -> str:
    """The first lines of a text; they may be long, but not all together.

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
