"""Comparative measurements: interleaved rounds, medians, ratios, tables.

A machine's load changes from minute to minute, so only figures of the same rounds can be compared;
an absolute time says little.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Samples = dict[str, list[float]]


def options(document: str | None, **more: Any) -> argparse.Namespace:
    """Read the command line of a bench: `--short`, and further options.

    Args:
        document: the bench's docstring, shown by `--help`.
        more: the defaults of further options by name; `False` makes a switch.
    """
    parser = argparse.ArgumentParser(description=document)
    parser.add_argument("--short", action="store_true", help="ten seconds, to see that it works")
    for name, default in more.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def interleave(cases: Mapping[str, Callable[[], float | None]], rounds: int) -> Samples:
    """Run all cases in each round, in a random order.

    Args:
        cases: functions by name; each returns its figure, or `None` to count the seconds that it
            took.
        rounds: the number of rounds.
    """
    samples: Samples = {name: [] for name in cases}
    for _ in range(rounds):
        for name in random.sample(list(cases), len(cases)):
            begun = time.perf_counter()
            figure = cases[name]()
            samples[name].append(time.perf_counter() - begun if figure is None else figure)
    return samples


def median(samples: Sequence[float]) -> float:
    return statistics.median(samples)


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least this share of the samples does not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ratio(samples: Samples, one: str, other: str) -> float:
    """Return the median of the ratio of two cases, round by round."""
    pairs = zip(samples[one], samples[other], strict=True)
    return median([mine / theirs for mine, theirs in pairs])


def table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    rule = _line(["-" * width for width in widths], widths)
    return "\n".join([f"### {title}", "", lines[0], rule, *lines[1:], ""])


def spread(title: str, rows: Sequence[tuple[str, Sequence[float], str]], unit: str) -> str:
    """Return a table of medians with the middle half of the rounds.

    Args:
        title: the subject of the measurement.
        rows: a name, its samples and a remark.
        unit: of the samples.
    """
    found = [[name, *map(_short, _quartiles(samples)), remark] for name, samples, remark in rows]
    return table(title, [["what", "25 %", f"median {unit}", "75 %", ""], *found])


def machine() -> str:
    """Return the number of cores, the system and its load."""
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    return f"{os.cpu_count()} cores, {system}, load {load}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def _quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"
