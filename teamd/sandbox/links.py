"""The way of a path through symbolic links, as the kernel goes it; see path_resolution(7)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_MOST_LINKS: Final = 40  # as in Linux


def follow(path: Path) -> Iterator[str]:
    """Yield each link on the way of a path, and where it ends; nothing need stand there."""
    at = os.sep
    for at, is_link in _steps(path):
        if is_link:
            yield at
    yield at


def leads_through(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether anything on the way of a path is one of some folders, or lies in one.

    A way of more links than the kernel follows may: others go on where this stops to look.
    """
    inside = tuple(f"{folder}{os.sep}" for folder in folders)
    links = 0
    for step, is_link in _steps(path):
        links += is_link
        if f"{step}{os.sep}".startswith(inside) or links > _MOST_LINKS:
            return True
    return False


def _steps(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each place on the way, without a link before it, and whether it is a link itself."""
    left, at, links = [*reversed(path.parts[1:])], os.sep, 0
    while left and links <= _MOST_LINKS:
        part = left.pop()
        step = os.path.dirname(at) if part == os.pardir else os.path.join(at, part)  # noqa: PTH118, PTH120 -- text
        try:
            target = os.readlink(step)  # noqa: PTH115 -- as it is
        except OSError:
            at = step
            yield at, False
            continue
        yield step, True
        links += 1
        at = os.sep if target.startswith(os.sep) else at
        left += reversed([part for part in Path(target).parts if part != os.sep])
