"""Memory that a backlog took, given back to the system once there is nothing to do."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

_MUCH_BYTES: Final = 1 << 20  # that crossed: a calm postman does not care


@dataclass(slots=True)
class SpareMemory:
    """Knows when it is worth it: what free(3) got back stays with the process otherwise."""

    _used: int = _MUCH_BYTES  # to begin takes some, too

    def use(self, size: int) -> None:
        """Take note of so many bytes that cross."""
        self._used += size

    def rest(self) -> None:
        """Give back what is spare, if much has crossed since the last time."""
        if self._used < _MUCH_BYTES:
            return
        self._used = 0
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's, see malloc_trim(3)
        if trim is not None:
            trim(ctypes.c_size_t(0))
