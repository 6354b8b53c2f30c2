"""A control group for the commands of one teammate, where this process may make one.

Limits of single processes do not bind root, and a count of processes comes too late for a fork bomb
on a busy machine: the kernel's own limit does not. With version 1 of control groups that is the
`pids` hierarchy; with version 2 a sibling of this process's own group, whose parent must hand the
controller on, as systemd's `Delegate=` does. See cgroups(7).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_CONTROLLER: Final = "pids"
_DYING_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A group of processes, and how many it may have.

    Attributes:
        joined: whether this very process is in it, and so is whatever it starts.
    """

    path: Path
    processes: int
    joined: bool = False

    @classmethod
    def make(cls, name: str, processes: int) -> Cgroup | None:
        """Make a group, or take the one of that name; `None` where that is not possible."""
        parent = _parent()
        if parent is None:
            return None
        group = cls(parent / name, processes)
        try:
            group._limit()
        except OSError:
            group.remove()
            return None
        return group

    @classmethod
    def find(cls, name: str) -> Cgroup | None:
        """Return the group of that name, if there may be one."""
        parent = _parent()
        return None if parent is None else cls(parent / name, 0)

    def join(self) -> Cgroup:
        """Move this process into it; return the group as it is then.

        To move a process takes the kernel ten milliseconds, in which nobody on the machine can
        fork. So who starts many moves once, and not each of them.
        """
        try:
            self.add(os.getpid())
        except OSError:  # it cannot be moved, so what it starts will be
            return self
        return replace(self, joined=True)

    def add(self, pid: int) -> None:
        """Move a process into it; where it was removed meanwhile, it is made again.

        Raises:
            OSError: the process has ended, or may not be moved.
        """
        try:
            self._move(pid)
        except FileNotFoundError:
            self._limit()
            self._move(pid)

    def _limit(self) -> None:
        self.path.mkdir(exist_ok=True)
        (self.path / "pids.max").write_text(str(self.processes))

    def _move(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    @property
    def refusals(self) -> int:
        """How often a process could not be made, for the limit."""
        try:
            words = (self.path / "pids.events").read_text().split()
            return int(words[words.index("max") + 1])
        except (OSError, ValueError, IndexError):
            return 0

    def kill(self) -> None:
        """Kill every process in it; one that clung to life elsewhere cannot leave its group."""
        for pids in self._until_free():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """Remove it; one in which a process stays is left as it is."""
        for _ in self._until_free():
            pass
        with suppress(OSError):
            self.path.rmdir()

    def _until_free(self) -> Iterator[list[int]]:
        """Yield who is in it, until nobody is or for a tenth of a second: the killed take time."""
        deadline = time.monotonic() + _DYING_SECONDS
        while (pids := self._pids()) and time.monotonic() < deadline:
            yield pids
            time.sleep(_PAUSE_SECONDS)

    def _pids(self) -> list[int]:
        try:
            return list(map(int, (self.path / "cgroup.procs").read_text().split()))
        except OSError:
            return []


@cache
def _parent() -> Path | None:
    """Return the folder in which groups can be made."""
    try:
        lines = [line.split(":", 2) for line in _OWN.read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in lines:
        own = path.lstrip("/")
        if _CONTROLLER in controllers.split(","):
            return _MOUNTS / _CONTROLLER / own
        above = (_MOUNTS / own).parent if own else _MOUNTS
        with suppress(OSError):
            if not controllers and _CONTROLLER in (above / "cgroup.subtree_control").read_text():
                return above
    return None
