"""A process's heartbeat: a number in memory that it shares with its supervisor.

It costs no system call, wakes nobody, and is readable whatever the process hangs in.
"""

from __future__ import annotations

import mmap

from teamd import clocks


class Heartbeat:
    """The moment of a process's last heartbeat, and whether it has anything to do.

    Made before the fork; the child writes, the parent reads.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)
        # Eight aligned bytes, stored and loaded by one instruction each. `struct.pack_into` would
        # clear them first, and who reads in between would see a process silent since the boot.
        self._cell = memoryview(self._memory).cast("d")
        self.beat()

    def beat(self) -> None:
        """Show that the process works and is alive."""
        self._cell[0] = clocks.awake()

    def rest(self) -> None:
        """Show that the process waits for mail: until some comes, silence means nothing."""
        self._cell[0] = -clocks.awake()

    @property
    def resting(self) -> bool:
        """Whether the process said last that it waits."""
        return self._cell[0] < 0

    @property
    def heard(self) -> float:
        """The moment of the last heartbeat, by the clock `awake`."""
        return abs(self._cell[0])
