"""The roster as lines of any width; the least important columns are left out first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from teamctl.render import output, roster_table
from teamctl.render.roster_table import NUMBERS, SHAPE
from teamctl.render.tables import GAP, Cell
from teamd.overview.members import MemberView

Cells = Mapping[str, Cell]
Widths = Mapping[str, int]
Line = tuple[Cell, ...]

HEADINGS: Final = (
    "NAME", "ROLE", "STATUS", "FOR", "DOING", "CONTEXT", "COST", "MAIL", "TURNS", "CPU", "MEM",
)  # fmt: skip


def read(view: MemberView) -> Cells:
    """Return the cells of a member by heading, as `teamctl team` shows them."""
    found = dict(zip(roster_table.HEADINGS, roster_table.member_cells(view), strict=True))
    return {heading: (in_a_line(found[heading][0]), found[heading][1]) for heading in HEADINGS}


def fit(rows: Iterable[Cells], width: int) -> dict[str, int]:
    """Return the columns that fit, with their widths."""
    wide = {heading: len(heading) for heading in HEADINGS}
    for row in rows:
        wide = {heading: max(most, cells(row[heading][0])) for heading, most in wide.items()}
    return SHAPE.fit(wide, width, ())


def header(widths: Widths) -> Line:
    return tuple((_padded(head, head, wide), "bold") for head, wide in widths.items())


def line(row: Cells, widths: Widths) -> Line:
    return tuple((_padded(head, row[head][0], wide), row[head][1]) for head, wide in widths.items())


def text_of(shown: Line) -> str:
    return "".join(text for text, _ in shown)


def cut(text: str, wide: int) -> str:
    """Shorten a text to so many cells of a terminal, with an ellipsis if needed."""
    if cells(text) <= wide:
        return text
    if text.isascii():
        return f"{text[: wide - 1]}…"
    from rich.cells import set_cell_size  # noqa: PLC0415 -- only for non-ASCII text

    return f"{set_cell_size(text, wide - 1)}…"


def cells(text: str) -> int:
    """Return the width of a text in terminal cells."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 -- only for non-ASCII text

    return cell_len(text)


def in_a_line(text: str) -> str:
    """Return untrusted text as one line without control characters."""
    return " ".join(output.plain(text).split())


def _padded(heading: str, text: str, wide: int) -> str:
    shown = cut(text, wide)
    space = " " * (wide - cells(shown))
    return f"{space}{shown}{' ' * GAP}" if heading in NUMBERS else f"{shown}{space}{' ' * GAP}"
