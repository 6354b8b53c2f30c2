"""The saved run: a help topic with all tables, and the picture of it in README."""

from __future__ import annotations

import platform
import re
import subprocess
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.bench import ruler

Table = list[list[str]]

# With a background of its own, since the page around it may be dark when the browser is not.
_STYLE: Final = """
text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
.head { font-weight: 600 } .unit { fill: #59636e; font-size: 12px }
.ours { fill: #2f6fdf } .peer { fill: #a9b3bf } .ground { fill: #f6f8fa }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .unit { fill: #9aa4b0 }
  .ours { fill: #5b93f5 } .peer { fill: #5c6670 } .ground { fill: #161b22 }
}
"""
_EDGE: Final = 16
_WIDTH: Final = 410  # of a panel
_COLUMNS: Final = 2
_NAMES: Final = 150  # in front of the bars
_FIGURES: Final = 60  # after the longest bar
_GAP: Final = 20  # between panels
_LINE: Final = 22
_BAR: Final = 14


@dataclass(frozen=True, slots=True)
class Panel:
    """A few figures of one table.

    Attributes:
        head: the title of the panel.
        unit: the unit of the figures, and whether more is better.
        table: the title of the table.
        shown: the label of each row that is shown; labels of our rows begin with `teamd`.
    """

    head: str
    unit: str
    table: str
    shown: Mapping[str, str]


PANELS: Final = (
    Panel("Mail, on the disk: one writer", "messages a second, more is better",
          "one writer, durable",
          {"teamd": "teamd", "SQLite FULL": "SQLite", "Redis always": "Redis Streams"}),
    Panel("Mail, on the disk: 8 writers, a reader", "messages a second, more is better",
          "8 writers and a reader, durable",
          {"teamd": "teamd", "SQLite FULL": "SQLite", "Redis always": "Redis Streams"}),
    Panel("Mail wakes an idle teammate", "ms until its model is asked, less is better",
          "an idle teammate's wake",
          {"teamd": "teamd", "inotify + two syncs + SDK": "inotify and SDK, bare"}),
    Panel("A new teammate", "ms until its model is asked, less is better",
          "Spawn and wake",
          {"spawn": "teamd", "a fresh process, the SDK alone": "a fresh process"}),
    Panel("Memory of each of 100 teammates", "MiB, less is better",
          "A team of 100",
          {"hibernating, each of 100": "teamd, hibernating",
           "worked and idle, each of 100": "teamd, idle",
           "a fresh process with the SDK": "a fresh process"}),
    Panel("A command", "ms, less is better",
          "commands",
          {"teamctl team": "teamd: teamctl team", "supervisorctl status": "supervisorctl status",
           "git status": "git status", "python -c pass": "python -c pass"}),
)  # fmt: skip


def read_tables(page: str) -> dict[str, Table]:
    """Return the rows of the tables that `ruler.table` has printed, by their titles."""
    tables: dict[str, Table] = {}
    title = ""
    for line in page.splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        elif line.startswith("| ") and not line.startswith("| --"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            tables.setdefault(title, []).append(cells)
    return tables


def draw(page: str) -> str:
    """Return a page's figures as an SVG picture; missing figures are left out."""
    tables = read_tables(page)
    drawn = [
        (panel, bars) for panel in PANELS if (bars := _bars(panel, tables.get(panel.table, [])))
    ]
    y, parts = _EDGE, []
    for start in range(0, len(drawn), _COLUMNS):
        row = drawn[start : start + _COLUMNS]
        for column, (panel, bars) in enumerate(row):
            parts += _panel(panel, bars, _EDGE + column * (_WIDTH + _GAP), y)
        y += (2 + max(len(bars) for _, bars in row)) * _LINE + _GAP
    width, height = _COLUMNS * (_WIDTH + _GAP) - _GAP + 2 * _EDGE, y - _GAP + _EDGE
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">'
    )
    title = "<title>Benchmarks: teamd beside other programs</title>"
    ground = f'<rect class="ground" width="{width}" height="{height}" rx="8"/>'
    return "\n".join([opening, title, f"<style>{_STYLE}</style>", ground, *parts, "</svg>", ""])


def _bars(panel: Panel, table: Table) -> list[tuple[str, str]]:
    """Return the names and figures of the measured rows."""
    if not table:
        return []
    column = next(n for n, cell in enumerate(table[0]) if "median" in cell)
    found = {row[0]: row[column] for row in table[1:]}
    return [(name, found[row]) for row, name in panel.shown.items() if row in found]


def _panel(panel: Panel, bars: Sequence[tuple[str, str]], x: int, y: int) -> list[str]:
    parts = [
        _text(x, y + 15, panel.head, "head"),
        _text(x, y + 15 + _LINE - 4, panel.unit, "unit"),
    ]
    longest = max(_number(figure) for _, figure in bars)
    room = _WIDTH - _NAMES - _FIGURES
    for line, (name, figure) in enumerate(bars):
        top = y + 2 * _LINE + line * _LINE
        length = max(2, round(room * _number(figure) / longest))
        kind = "ours" if name.startswith("teamd") else "peer"
        parts.append(_text(x, top + _BAR - 2, name))
        parts.append(
            f'<rect class="{kind}" x="{x + _NAMES}" y="{top}" '
            f'width="{length}" height="{_BAR}" rx="2"/>'
        )
        parts.append(_text(x + _NAMES + length + 6, top + _BAR - 2, figure))
    return parts


def _text(x: int, y: int, words: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{marked}>{escape(words)}</text>'


def _number(figure: str) -> float:
    return float(figure.replace(",", ""))


_REPOSITORY: Final = Path(__file__).parents[2]
TOPIC: Final = _REPOSITORY / "teamctl" / "topics" / "benchmarks.md"
PICTURE: Final = Path(__file__).with_name("benchmarks.svg")

_COMMIT: Final = ("git", "describe", "--always", "--dirty")
_OPENING: Final = """\
# Benchmarks: what teamd adds to the model's own time, memory and price

Measured on {date} at commit {commit} of teamd {teamd}, with anthropic {anthropic} and Python
{python}, on {machine}. The load of a machine varies, so the
cases of a table took turns: compare figures of one table only. Every version is to keep the limits.
Peers that were not installed are left out.

In a clone of the repository, `python -m tests.bench` measures all of this anew, and
`python -m tests.bench --short` only tries in a minute that nothing is lost.
"""
SECTIONS: Final[Mapping[str, str]] = {
    "mail": "Messages a second, each with its own id and time. A durable message is on the disk "
    "when the call returns. A bare file with `flock` loses the messages that a killed reader has "
    "taken.",
    "wake": "From mail in the inbox of an idle teammate to its request to the model. The bare "
    "program waits with inotify, syncs a record of the mail and one of the cost, and sends the "
    "same bytes.",
    "turn": "From one model call of a teammate to its next, with a trivial tool in between, beside "
    "its bare parts. `bwrap` has the same mounts as a teammate's sandbox.",
    "spawn": "From the request for a teammate to its first request to the model.",
    "memory": "The proportional share of memory (PSS) of each teammate.",
    "growth": "Teams of several sizes. A broadcast wakes everybody.",
    "commands": "Commands as a shell starts them.",
    "tokens": "The share of a task's input tokens that is paid in full, and not read from the "
    "prompt cache.",
    "merges": "From a ready supervisor with a full merge queue to the last merge, beside the same "
    "merges, checks and pushes by hand, without a sandbox.",
}


def write(outputs: Mapping[str, str]) -> None:
    """Save the output of the benches, given by their names."""
    page = compose(outputs)
    TOPIC.write_text(page, encoding="utf-8")
    PICTURE.write_text(draw(page), encoding="utf-8")


def compose(outputs: Mapping[str, str]) -> str:
    """Return the text of the help topic."""
    opening = _OPENING.format(
        date=time.strftime("%Y-%m-%d"),
        commit=subprocess.check_output(_COMMIT, cwd=_REPOSITORY, text=True).strip(),
        teamd=version("teamd"),
        anthropic=version("anthropic"),
        python=platform.python_version(),
        machine=ruler.machine(),
    )
    parts = [
        f"## {name.capitalize()}\n\n{_filled(SECTIONS[name])}\n\n{output.strip()}\n"
        for name, output in outputs.items()
    ]
    page = "\n".join([opening, *parts]).replace("\n### ", "\n\n### ")
    return re.sub(r"\n{3,}", "\n\n", page)


def _filled(sentence: str) -> str:
    return textwrap.fill(sentence, 100)
