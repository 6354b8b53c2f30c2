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
        elastic: columns that are cut with an ellipsis, first column first, and their minimum width.
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


def cell(text: str, style: str = "") -> Text:
    """Return a text from outside the program for rich, without interpreting markup in it."""
    from rich.text import Text  # noqa: PLC0415 -- see `console`

    return Text(terminal.plain(text), style=style)


def fit_lines(
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    numbers: Sequence[str],
    shape: Shape,
    width: int,
    *,
    steady: bool = False,
) -> list[Text]:
    """Return the headings and the rows as lines for a width, as `docker ps` has them.

    Args:
        headings: the headings of the columns.
        rows: rows of cells, each a text and its style.
        numbers: the headings of columns of figures.
        shape: the columns to cut or to leave out.
        width: the width of the terminal.
        steady: whether columns without values are kept as long as others.
    """
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 -- see `console`
    from rich.text import Text  # noqa: PLC0415 -- the same

    lines = [[(one, "bold") for one in headings]]
    lines += ([(terminal.plain(text), style) for text, style in row] for row in rows)
    columns = dict(zip(headings, zip(*lines, strict=True), strict=True))
    widths = {one: max(cell_len(text) for text, _ in cells) for one, cells in columns.items()}
    empty = [one for one, (_, *cells) in columns.items() if _EMPTY.issuperset(t for t, _ in cells)]
    fitted = shape.fit(widths, width, () if steady else empty)

    def padded(text: str, heading: str, wide: int) -> str:
        if cell_len(text) > wide:
            text = f"{set_cell_size(text, wide - 1)}…"
        space = " " * (wide - cell_len(text))
        return space + text if heading in numbers else text + space

    made = []
    for row in zip(*(columns[one] for one in fitted), strict=True):
        line = Text(no_wrap=True, overflow="ellipsis")
        for (text, style), (heading, wide) in zip(row, fitted.items(), strict=True):
            line.append(" " * GAP if line else "").append(padded(text, heading, wide), style)
        line.rstrip()
        made.append(line)
    return made


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table that rich draws for the width of its console, see `fit_lines`."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Sequence[str]
    shape: Shape

    def lines(self, width: int) -> list[Text]:
        """Return the headings and the rows as lines for a width."""
        return fit_lines(self.headings, self.rows, self.numbers, self.shape, width)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw the table, as rich's console protocol asks."""
        yield from self.lines(options.max_width)


def make_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    numbers: Sequence[str],
    shape: Shape | None = None,
) -> FittedTable:
    """Return a table; a cell may have a style.

    If the table is too wide, the last column is cut, unless a shape says otherwise.
    """
    cells = [[one if isinstance(one, tuple) else (one, "") for one in row] for row in rows]
    return FittedTable(headings, cells, numbers, shape or Shape(elastic={headings[-1]: _LEAST_CUT}))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    numbers: Sequence[str],
    shape: Shape | None = None,
) -> None:
    """Print a table, see `make_table`."""
    console().print(make_table(headings, rows, numbers, shape))
