"""The states of a teammate, and the exit codes of its process."""

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
        """Whether a running `teamd` keeps a process for a member with this status."""
        return self in (Status.WORKING, Status.IDLE, Status.PAUSED)


class ChildExit(IntEnum):
    """The exit codes by which a teammate's process reports why it ended.

    The numbers for settings and I/O are those of BSD's `sysexits.h`.
    """

    STOPPED = 0
    CRASHED = 1
    HIBERNATES = 3  # it is idle; a new process continues, and loads nothing until it is woken
    IO = 74
    SETTINGS = 78
