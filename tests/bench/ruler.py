"""Measuring side by side: rounds in which the cases take turns, medians, ratios, a table."""

from __future__ import annotations

import os
import platform
import random
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Figures = dict[str, list[float]]


def interleave(cases: Mapping[str, Callable[[], float]], rounds: int) -> Figures:
    """Return what each case gave in each round; in every round they come in another order."""
    found: Figures = {name: [] for name in cases}
    for _ in range(rounds):
        for name in random.sample(list(cases), len(cases)):
            found[name].append(cases[name]())
    return found


def ratio(figures: Figures, one: str, other: str) -> float:
    """Return the median of one case's share of another's, round by round."""
    pairs = zip(figures[one], figures[other], strict=True)
    return statistics.median(mine / theirs for mine, theirs in pairs)


def table(title: str, rows: Sequence[tuple[str, Sequence[float], str]], unit: str) -> None:
    """Print medians with the middle half of the rounds: a name, its figures and a remark a row."""
    print(f"\n{title}, {unit}")
    wide = max(len(name) for name, _, _ in rows)
    for name, figures, remark in rows:
        low, middle, high = _quartiles(figures)
        print(f"  {name:{wide}}  {_short(middle):>8}  ({_short(low)} to {_short(high)})  {remark}")


def machine() -> str:
    """Return what was measured on: kernel, cores, load, Python."""
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    file_system = _file_system()
    python = platform.python_version()
    return f"{platform.release()}, {os.cpu_count()} cores, load {load}, {file_system}, {python}"


def _quartiles(figures: Sequence[float]) -> tuple[float, float, float]:
    if len(figures) == 1:
        return figures[0], figures[0], figures[0]
    low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
    return low, middle, high


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _file_system() -> str:
    """Return the type of the file system of the current folder, where the system tells."""
    mounts = Path("/proc/mounts")
    if sys.platform != "linux" or not mounts.exists():
        return sys.platform
    here, best = str(Path.cwd()) + "/", ("", "")
    for line in mounts.read_text().splitlines():
        place, kind = line.split()[1:3]
        if here.startswith(place.rstrip("/") + "/") and len(place) >= len(best[0]):
            best = (place, kind)
    return best[1]
