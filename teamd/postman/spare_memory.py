"""Return the memory of a finished backlog to the operating system."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

_MUCH_BYTES: Final = 1 << 20  # transferred bytes; less is not worth the call


@dataclass(slots=True)
class SpareMemory:
    """Decides when to trim the heap: otherwise the process keeps freed memory."""

    _used: int = _MUCH_BYTES  # startup uses memory, too

    def use(self, size: int) -> None:
        """Count transferred bytes."""
        self._used += size

    def rest(self) -> None:
        """Return unused memory if many bytes were transferred since the last time."""
        if self._used < _MUCH_BYTES:
            return
        self._used = 0
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc, see malloc_trim(3)
        if trim is not None:
            trim(ctypes.c_size_t(0))
