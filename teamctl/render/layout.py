"""Texts as lines: wrapped, clipped, and with Markdown rendered on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Final

from teamctl.render import output
from teamd.command_line import terminal

_LONGEST: Final = 100  # characters of a line
_LINES: Final = 3


def clip_line(text: str) -> str:
    """Return a text in one line, cut if it is too long."""
    return _cut(" ".join(output.plain(text).splitlines()), _LONGEST)


def clip_first_line(text: str) -> str:
    """Return the first line of a text, cut if it is too long."""
    return _cut(next(iter(output.plain(text).splitlines()), ""), _LONGEST)


def clip_beginning(text: str, *, lines: int = _LINES, rest: str) -> str:
    """Return the first lines of a text, cut if they are too long together.

    Args:
        text: any text.
        lines: the maximum number of lines to keep.
        rest: says where the whole text can be read; added if the text is cut.
    """
    found = [one.rstrip() for one in output.plain(text).strip().splitlines()]
    kept = "\n".join(found[:lines])
    cut = _cut(kept, _LONGEST * lines)
    if cut == kept and len(found) > lines:
        cut += "…"
    return cut if cut == kept else f"{cut} ({rest})"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest].rstrip()}…"


WIDEST: Final = 100  # columns; longer lines are hard to read
_NARROWEST: Final = 10
_CODE: Final = "bold cyan"  # rich's own style has a background
_CONTEXT: Final = 2  # lines around a change
_MOST_RENDERED: Final = 20_000  # characters: a longer text takes seconds to render
_MOST_COMPARED: Final = 2000  # lines; the time to compare grows with their square
_DIFF_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class Layout:
    """The width and styles of output lines.

    Attributes:
        width: in columns; `None` for no wrapping.
        styled: whether Markdown is rendered.
    """

    width: int | None = None
    styled: bool = False

    @classmethod
    def of_output(cls) -> Layout:
        """Return the layout that suits standard output."""
        if not sys.stdout.isatty():
            return cls()
        return cls(get_terminal_size().columns, styled=os.environ.get("TERM") != "dumb")

    def lines(
        self, text: str, indent: str = "", fg: str | None = None, *, dim: bool = False
    ) -> Iterator[str]:
        """Yield the lines of a text, wrapped and indented."""
        for part in self.wrap(text, len(indent)):
            yield indent + terminal.style(part, fg=fg, dim=dim)

    def wrap(self, text: str, indent: int = 0) -> Iterator[str]:
        """Yield the lines of a text without styles, wrapped to leave room for an indent."""
        for line in output.plain(text).splitlines():
            yield from self._wrapped(line, indent)

    def markdown(self, text: str, indent: str = "") -> Iterator[str]:
        """Yield the lines of a Markdown text, rendered on a terminal with styles."""
        if not self.styled or self.width is None or len(text) > _MOST_RENDERED:
            yield from self.lines(text, indent)
            return
        room = max(_NARROWEST, self.width - len(indent))
        # Keep each line break: agents and people mean them.
        broken = output.plain(text).replace("\n", "  \n")
        for line in render_markdown(broken, min(room, WIDEST)).splitlines():
            yield indent + line.rstrip()

    def diff(self, old: str, new: str, indent: str = "") -> Iterator[str]:
        """Yield the changed lines between two texts, with some context."""
        for line in _changes(old.splitlines(), new.splitlines()):
            yield from self.lines(line or " ", indent, _DIFF_COLOURS.get(line[:1]))

    def _wrapped(self, line: str, indent: int) -> list[str]:
        room = None if self.width is None else max(_NARROWEST, self.width - indent)
        if room is None or (line.isascii() and len(line) <= room and "\t" not in line):
            return [line]
        from rich.console import Console  # noqa: PLC0415 -- 20 ms, only for long lines
        from rich.text import Text  # noqa: PLC0415 -- the same

        parts = Text(line.expandtabs()).wrap(Console(width=room), room, overflow="fold")
        return [part.plain.rstrip() for part in parts] or [""]


def render_markdown(text: str, width: int) -> str:
    """Return Markdown laid out for the terminal, with the codes for its styles."""
    from rich.console import Console  # noqa: PLC0415 -- 80 ms, only on a terminal
    from rich.markdown import Markdown  # noqa: PLC0415 -- the same
    from rich.theme import Theme  # noqa: PLC0415 -- the same

    theme = Theme({"markdown.code": _CODE})
    console = Console(force_terminal=True, width=width, highlight=False, emoji=False, theme=theme)
    with console.capture() as captured:
        # No hyperlinks: the person should read where a link leads.
        console.print(Markdown(text, code_theme="ansi_dark", hyperlinks=False))
    return captured.get()


def _changes(old: list[str], new: list[str]) -> Iterator[str]:
    if max(len(old), len(new)) > _MOST_COMPARED:
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    from difflib import unified_diff  # noqa: PLC0415 -- only for changes

    _, _, *rest = unified_diff(old, new, n=_CONTEXT, lineterm="") or ("", "")
    yield from (line for line in rest if not line.startswith("@@ "))
