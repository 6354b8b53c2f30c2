"""A control group for the commands of one teammate, if this process may create one.

It limits the number of processes: other limits do not bind root, and counting processes is too slow
for a fork bomb on a busy machine. Version 1 of control groups has a `pids` hierarchy. In version 2
the group is a sibling of this process's group, whose parent must delegate the controller, as with
systemd's `Delegate=`. See cgroups(7).
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
    """A control group.

    Attributes:
        processes: the maximum number of processes.
        joined: whether this process, and so every program that it starts, is in it.
    """

    path: Path
    processes: int
    joined: bool = False

    @classmethod
    def make(cls, name: str, processes: int) -> Cgroup | None:
        """Create the group of that name unless it exists; `None` if that is not possible."""
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
        """Move this process into it; return the group with its new `joined`.

        A move takes the kernel ten milliseconds, during which no process on the machine can fork.
        So a process that starts many commands moves itself once.
        """
        try:
            self.add(os.getpid())
        except OSError:  # the started programs are moved instead
            return self
        return replace(self, joined=True)

    def add(self, pid: int) -> None:
        """Move a process into it, and create the group again if it was removed.

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
        """How often the limit prevented a fork."""
        try:
            words = (self.path / "pids.events").read_text().split()
            return int(words[words.index("max") + 1])
        except (OSError, ValueError, IndexError):
            return 0

    def kill(self) -> None:
        """Kill every process in it; processes cannot leave the group."""
        for pids in self._until_free():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """Remove it, unless a process stays in it."""
        for _ in self._until_free():
            pass
        with suppress(OSError):
            self.path.rmdir()

    def _until_free(self) -> Iterator[list[int]]:
        """Yield the pids in it until it is empty, for at most `_DYING_SECONDS`."""
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
