"""Huge pages: what is loaded before many forks is put into pages of 2 MiB.

A fork copies the table of all pages, and the copy of a huge page's entry is one of 512.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZE: Final = 1 << 21
_MADV_COLLAPSE: Final = 25  # since Linux 6.1
_MAPS: Final = Path("/proc/self/maps")


def use_huge_pages() -> None:
    """Put this process's own memory into huge pages, as far as the kernel will; else it stays."""
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None or not _MAPS.exists():
        return
    for place in find_places(_MAPS.read_text(encoding="ascii", errors="replace")):
        advise(ctypes.c_void_p(place), ctypes.c_size_t(_SIZE), _MADV_COLLAPSE)


def find_places(maps: str) -> Iterator[int]:
    """Yield where a huge page has room in memory that may be written to and is of no file.

    Args:
        maps: of the process, as proc_pid_maps(5) describes it.
    """
    for span, rights, _, _, inode in (line.split()[:5] for line in maps.splitlines()):
        begin, end = (int(number, 16) for number in span.split("-"))
        if "w" in rights and inode == "0":
            yield from range(-(-begin // _SIZE) * _SIZE, end - _SIZE + 1, _SIZE)
