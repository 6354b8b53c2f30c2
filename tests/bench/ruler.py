"""Rounds in which all cases take turns, and the table of what they took.

A machine is busier in one minute than in the next, so that only figures of the same rounds can be
compared; a time alone says nothing.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Samples = dict[str, list[float]]


def interleave(cases: Mapping[str, Callable[[], float | None]], rounds: int) -> Samples:
    """Run all cases one after the other, so many times.

    Args:
        cases: what to do, by name; it returns its own figure, or `None`: then the seconds that it
            took count.
        rounds: how many times.
    """
    samples: Samples = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            begun = time.perf_counter()
            figure = case()
            samples[name].append(time.perf_counter() - begun if figure is None else figure)
    return samples


def median(samples: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(samples)


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least such a share does not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    rule = _line(["-" * width for width in widths], widths)
    return "\n".join([f"### {title}", "", lines[0], rule, *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def machine() -> str:
    """Return a line that says what it ran on."""
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {python}"
