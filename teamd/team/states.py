"""The states of a teammate, and how its process starts and ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from teamd.team.heartbeat import Heartbeat


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStart:
    """The start of a teammate's process.

    Attributes:
        name: the teammate's.
        bell: the reading end of the pipe that wakes it.
        slots: its end of the channel for slots of model calls.
        heartbeat: shared with the supervisor.
        hibernates: whether it waits for mail or a task before it loads its conversation.
    """

    name: str
    bell: int
    slots: int
    heartbeat: Heartbeat
    hibernates: bool


class ChildExit(IntEnum):
    """The exit codes by which a teammate's process reports why it ended.

    The numbers for settings and I/O are those of BSD's `sysexits.h`.
    """

    STOPPED = 0
    CRASHED = 1
    HIBERNATES = 3  # it is idle; a new process continues, and loads nothing until it is woken
    IO = 74
    SETTINGS = 78
