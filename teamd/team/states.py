"""The words for how a teammate is, and for how its process ended."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Status(StrEnum):
    """A member's `status` in `config.json`."""

    WORKING = "working"
    IDLE = "idle"
    SHUTDOWN = "shutdown"
    FAILED = "failed"
    PAUSED = "paused"

    @property
    def wants_process(self) -> bool:
        """Return whether a running `teamd` keeps a process for such a member."""
        return self in (Status.WORKING, Status.IDLE, Status.PAUSED)


class ChildExit(IntEnum):
    """The exit codes by which a teammate's process says why it ended.

    The figures for settings and I/O are those of BSD's `sysexits.h`.
    """

    STOPPED = 0
    CRASHED = 1
    HIBERNATES = 3  # it idles, and goes on in a new process that loads nothing until it is woken
    IO = 74
    SETTINGS = 78
