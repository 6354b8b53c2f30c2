"""The first screen, drawn before textual is loaded, so that it appears at once.

Keys typed in the meantime stay in the terminal until textual reads them.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Final

from teamctl.top import bar, columns
from teamctl.top.columns import Line
from teamd.command_line import terminal
from teamd.overview.overview import Overview

_ENTER: Final = "\033[?1049h\033[?25l\033[2J\033[H"
_LEAVE: Final = "\033[?25h\033[?1049l"
_MOST_ASKS: Final = 3
_COLOURS: Final = frozenset({"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"})


@contextmanager
def taken_terminal() -> Iterator[None]:
    """Use the alternate screen for a block; typed keys are not echoed and stay unread."""
    _settle_size()
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[0] &= ~(termios.ICRNL | termios.INLCR)  # Enter is not translated
    quiet[3] &= ~(termios.ECHO | termios.ICANON)  # Ctrl-C still ends the program
    termios.tcsetattr(fd, termios.TCSANOW, quiet)
    try:
        _write(_ENTER)
        yield
    finally:
        _write(_LEAVE)
        termios.tcsetattr(fd, termios.TCSANOW, before)


def draw(seen: Overview) -> None:
    """Draw a team on the alternate screen."""
    width, height = get_terminal_size()
    lines = [_styled(line) for line in compose(seen, width)[:height]]
    _write("\r\n".join(lines))


def compose(seen: Overview, width: int) -> list[Line]:
    """Return the lines of the screen from top to bottom."""
    asks = [_cut(bar.ask(one), width) for one in seen.waiting[:_MOST_ASKS]]
    rows = [columns.read(view) for view in seen.members]
    widths = columns.fit(rows, width)
    above = [bar.title(seen, width), bar.waiting(seen), *asks, columns.header(widths)]
    return [*above, *(columns.line(row, widths) for row in rows)]


def _settle_size() -> None:
    """Set a usual size if the terminal reports none, as on a serial line.

    Textual would alternate between two sizes and redraw forever.
    """
    if 0 in os.get_terminal_size(sys.stdout.fileno()):
        os.environ |= {"COLUMNS": "80", "LINES": "24"}


def _cut(line: Line, width: int) -> Line:
    (who, style), (what, bold) = line
    return (who, style), (columns.cut(what, max(1, width - columns.cells(who))), bold)


def _styled(line: Line) -> str:
    if "NO_COLOR" in os.environ:
        return columns.text_of(line).rstrip()
    return "".join(_style(text, words.split()) for text, words in line).rstrip()


def _style(text: str, words: list[str]) -> str:
    colour = next((w for w in words if w.removeprefix("bright_") in _COLOURS), None)
    return terminal.style(text, fg=colour, bold="bold" in words) if words else text


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
