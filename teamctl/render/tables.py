"""Tables, drawn by rich; on a narrow terminal they leave out columns in a set order."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from teamd.command_line import terminal

Cell: TypeAlias = tuple[str, str]  # a text that may come from elsewhere, and its style for rich

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

GAP: Final = 2
_WIDE: Final = 10_000  # a pipe has no width: nothing is wrapped or cut for it
_LEAST_CUT: Final = 8
_EMPTY: Final = frozenset({"-", "0"})
_GOOD: Final = 24  # characters are enough to read a text


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns that a table cuts or leaves out on a narrow terminal.

    Attributes:
        elastic: columns that are cut with an ellipsis, first column first, and their least width.
        spare: columns that are left out, first column first, so that elastic ones stay readable.
        dispensable: columns that are left out after the spare ones, so that the others fit at all.
    """

    elastic: Mapping[str, int] = field(default_factory=dict)
    spare: tuple[str, ...] = ()
    dispensable: tuple[str, ...] = ()

    def fit(self, widths: Mapping[str, int], room: int, empty: Collection[str]) -> dict[str, int]:
        """Return the columns that fit, and their widths.

        Args:
            widths: the full width of each column.
            room: the width of the terminal.
            empty: columns without a value in any row; they are left out first.
        """
        kept = dict(widths)
        first = [one for one in self.spare if one in empty]
        for heading in dict.fromkeys([*first, *self.spare, *self.dispensable]):
            good = _GOOD if heading in self.spare else 0
            if sum(self._least(one, wide, good) + GAP for one, wide in kept.items()) <= room:
                continue
            kept.pop(heading, None)
        excess = sum(wide + GAP for wide in kept.values()) - room
        for heading in self.elastic:
            if heading in kept and excess > 0:
                wide = kept[heading]
                kept[heading] = max(self._least(heading, wide), wide - excess)
                excess -= wide - kept[heading]
        return kept

    def _least(self, heading: str, wide: int, good: int = 0) -> int:
        return min(wide, max(good, self.elastic.get(heading, wide)))


def console() -> Console:
    """Return a console that is as wide as the terminal, and unbounded for a pipe."""
    from rich.console import Console  # noqa: PLC0415 -- 20 ms, only to draw

    class PipedConsole(Console):
        """Raises on a closed pipe, for `run` to handle; rich itself would exit with status 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    drawn = sys.stdout.isatty()
    return PipedConsole(width=None if drawn else _WIDE, highlight=False, soft_wrap=not drawn)


def table(headings: Sequence[str], *, numbers: Iterable[str] = ()) -> Table:
    """Return a table without lines, as `docker ps` and `systemctl list-units` have them."""
    from rich.table import Table  # noqa: PLC0415 -- see `console`

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        justify = "right" if heading in numbers else "left"
        made.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    return made


def cell(text: str, style: str = "") -> Text:
    """Return a text from outside the program for rich, without interpreting markup in it."""
    from rich.text import Text  # noqa: PLC0415 -- see `console`

    return Text(terminal.plain(text), style=style)


class FittedTable:
    """A table that fits the width of its console by its shape.

    Args:
        headings: the headings of the columns.
        rows: rows of cells, each a text and its style.
        numbers: the headings of columns of figures.
        shape: the columns to cut or to leave out.
    """

    def __init__(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        numbers: Sequence[str],
        shape: Shape,
    ) -> None:
        texts = [[cell(*one) for one in row] for row in rows]
        self._columns = {one: [row[place] for row in texts] for place, one in enumerate(headings)}
        self._numbers = numbers
        self._shape = shape

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Draw the table for a width, as rich's console protocol asks."""
        from rich.cells import cell_len  # noqa: PLC0415 -- only to draw

        columns = {one: [str(text) for text in texts] for one, texts in self._columns.items()}
        widths = {one: max(map(cell_len, (one, *texts))) for one, texts in columns.items()}
        empty = [one for one, texts in columns.items() if _EMPTY.issuperset(texts)]
        fitted = self._shape.fit(widths, options.max_width, empty)
        shown = table(list(fitted), numbers=self._numbers)
        for column, wide in zip(shown.columns, fitted.values(), strict=True):
            column.width = wide
        for row in zip(*(self._columns[one] for one in fitted), strict=True):
            shown.add_row(*row)
        yield shown


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    numbers: Sequence[str],
    shape: Shape | None = None,
) -> None:
    """Print rows below their headings; a cell may have a style.

    If the table is too wide, the last column is cut, unless a shape says otherwise.
    """
    cells = [[one if isinstance(one, tuple) else (one, "") for one in row] for row in rows]
    shape = shape or Shape(elastic={headings[-1]: _LEAST_CUT})
    console().print(FittedTable(headings, cells, numbers, shape))
