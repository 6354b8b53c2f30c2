"""A teammate's sign of life: a number in memory that its process and its supervisor share.

It costs no system call, wakes nobody, and is readable whatever the process hangs in.
"""

from __future__ import annotations

import mmap

from teamd import clocks


class Vitals:
    """When a process last showed that it goes on, and whether it has anything to do.

    Made before the fork; the child writes, the parent reads.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)
        # Eight aligned bytes, stored and loaded by one instruction each. `struct.pack_into` would
        # clear them first, and who reads in between would see a process silent since the boot.
        self._cell = memoryview(self._memory).cast("d")
        self.beat()

    def beat(self) -> None:
        """Be at work, and alive."""
        self._cell[0] = clocks.awake()

    def rest(self) -> None:
        """Wait for mail from now on: silence means nothing until some comes."""
        self._cell[0] = -clocks.awake()

    @property
    def resting(self) -> bool:
        """Whether the last sign was that it waits."""
        return self._cell[0] < 0

    @property
    def heard(self) -> float:
        """The moment of the last sign, by the clock `awake`."""
        return abs(self._cell[0])

    def close(self) -> None:
        """Give the memory back."""
        self._cell.release()
        self._memory.close()
