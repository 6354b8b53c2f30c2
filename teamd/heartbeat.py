"""A process's heartbeat: a number in memory that it shares with its supervisor.

It costs no system call, wakes nobody, and is readable whatever the process hangs in.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from teamd import clocks

_CELL: Final = struct.Struct("@d")  # eight aligned bytes: written and read in one piece


class Heartbeat:
    """The moment of a process's last heartbeat, and whether it has anything to do.

    Made before the fork; the child writes, the parent reads.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _CELL.size)
        self.beat()

    def beat(self) -> None:
        """Show that the process works and is alive."""
        _CELL.pack_into(self._memory, 0, clocks.awake())

    def rest(self) -> None:
        """Show that the process waits for mail: until some comes, silence means nothing."""
        _CELL.pack_into(self._memory, 0, -clocks.awake())

    @property
    def resting(self) -> bool:
        """Whether the process said last that it waits."""
        return self._read() < 0

    @property
    def heard(self) -> float:
        """The moment of the last heartbeat, by the clock `awake`."""
        return abs(self._read())

    def _read(self) -> float:
        value: float
        (value,) = _CELL.unpack_from(self._memory, 0)
        return value
