"""The roster as lines of any width: what can be spared most is left out first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from teamctl import output

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from teamctl.plain_table import Cell
    from teamctl.top.picture import Mate

    Widths = Mapping[str, int]
    Line = tuple[Cell, ...]

HEADINGS: Final = (
    "NAME", "ROLE", "STATE", "FOR", "DOING", "CTX", "COST", "MAIL", "TURNS", "CPU", "MEM",
)  # fmt: skip
DISPENSABLE: Final = ("MEM", "CPU", "TURNS", "ROLE", "COST", "CTX", "MAIL", "DOING", "FOR")
_NUMBERS: Final = HEADINGS[5:]
_LEAST: Final = {"DOING": 12, "ROLE": 6, "NAME": 8}  # cut with an ellipsis, down to so many
_GAP: Final = 2


def fit(mates: Iterable[Mate], width: int) -> dict[str, int]:
    """Return the columns that there is room for, and how wide each is."""
    rows = [_texts(mate) for mate in mates]
    wide = {head: max(len(head), *(cells(row[head]) for row in rows), 0) for head in HEADINGS}
    for heading in DISPENSABLE:
        if _total({h: min(w, _LEAST.get(h, w)) for h, w in wide.items()}) <= width:
            break
        del wide[heading]
    for heading in (head for head in _LEAST if head in wide):
        excess = max(0, _total(wide) - width)
        wide[heading] = max(min(_LEAST[heading], wide[heading]), wide[heading] - excess)
    return wide


def header(widths: Widths) -> Line:
    """Return the headings as a line."""
    return tuple((_padded(head, head, wide), "bold") for head, wide in widths.items())


def row(mate: Mate, widths: Widths) -> Line:
    """Return a member as a line."""
    texts = _texts(mate)
    styles = {"STATE": output.STATUS_COLOURS.get(mate.state, "yellow")}
    return tuple((_padded(h, texts[h], wide), styles.get(h, "")) for h, wide in widths.items())


def text_of(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line)


def cut(text: str, wide: int) -> str:
    """Return a text in so many cells of a terminal, with an ellipsis where it is longer."""
    if cells(text) <= wide:
        return text
    while text and cells(text) >= wide:
        text = text[:-1]
    return f"{text}…"


def cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 -- only for what is not ASCII

    return cell_len(text)


def in_a_line(text: str) -> str:
    """Return a text from elsewhere as one line that a terminal may be given."""
    return " ".join(output.plain(text).split())


def _padded(heading: str, text: str, wide: int) -> str:
    shown = cut(text, wide)
    space = " " * (wide - cells(shown))
    return f"{space}{shown}{' ' * _GAP}" if heading in _NUMBERS else f"{shown}{space}{' ' * _GAP}"


def _texts(mate: Mate) -> dict[str, str]:
    words = {
        "NAME": mate.name,
        "ROLE": mate.role,
        "STATE": mate.state,
        "FOR": output.ago(mate.since),
        "DOING": mate.doing or "-",
        "CTX": "-" if mate.context is None else f"{mate.context:.0%}",
        **dict(mate.facts),
    }
    return {heading: in_a_line(text) for heading, text in words.items()}


def _total(widths: Widths) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)
