"""Tables for pipes and files: what rich draws there, without loading it.

Only where both are sure to be the same: on no terminal, and of text that is all printable ASCII.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, TypeAlias

Cell: TypeAlias = tuple[str, str]  # a text from elsewhere, and its style in rich's words

_GAP: Final = 2
# By these a person makes rich treat any output as a terminal.
_FORCING: Final = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def wanted() -> bool:
    """Return whether standard output gets no styles, and has no width."""
    return not sys.stdout.isatty() and not any(name in os.environ for name in _FORCING)


def render(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numbers: Sequence[str],
    *,
    widest: int,
) -> list[str] | None:
    """Return the lines of a table; `None` where it takes more than this to lay it out."""
    lines = [headings, *([text for text, _ in row] for row in rows)]
    if not all(is_plain(text) for line in lines for text in line):
        return None
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) > widest:
        return None
    right = [heading in numbers for heading in headings]
    gap = " " * _GAP
    return [
        gap.join(
            text.rjust(wide) if number else text.ljust(wide)
            for text, wide, number in zip(line, widths, right, strict=True)
        )
        for line in lines
    ]


def is_plain(text: str) -> bool:
    """Return whether a text is as wide as it is long, and nothing of it is cut off or wrapped."""
    return text.isascii() and text.isprintable() and text == text.strip()
