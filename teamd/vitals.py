"""A teammate's sign of life: a number in memory that its process and its supervisor share.

It costs no system call, wakes nobody, and is readable whatever the process hangs in.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from teamd import clocks

_CELL: Final = struct.Struct("@d")  # eight aligned bytes: written and read in one piece


class Vitals:
    """When a process last showed that it goes on, and whether it has anything to do.

    Made before the fork; the child writes, the parent reads.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _CELL.size)
        self.beat()

    def beat(self) -> None:
        """Be at work, and alive."""
        _CELL.pack_into(self._memory, 0, clocks.awake())

    def rest(self) -> None:
        """Wait for mail from now on: silence means nothing until some comes."""
        _CELL.pack_into(self._memory, 0, -clocks.awake())

    @property
    def resting(self) -> bool:
        """Whether the last sign was that it waits."""
        return self._read() < 0

    @property
    def heard(self) -> float:
        """The moment of the last sign, by the clock `awake`."""
        return abs(self._read())

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()

    def _read(self) -> float:
        value: float
        (value,) = _CELL.unpack_from(self._memory, 0)
        return value
