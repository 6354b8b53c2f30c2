"""What a command leaves behind: the only module that ends processes it did not start itself."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from teamd.identity import Identity
from teamd.programs import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTLE_SECONDS: Final = 0.2  # `tee >(sed …)` ends just after its shell, and means to be read
_GRACE_SECONDS: Final = 2.0  # between SIGTERM and SIGKILL
_KILL_SECONDS: Final = 5.0  # after SIGKILL; what is still there then waits for a dead disk
_LAST_KILL_SECONDS: Final = 1.0  # the same where nothing else can run meanwhile
_PAUSE_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the end went.

    Attributes:
        background: pids of those that still ran when the end began, the program not counted.
        left: pids of those that could not be ended.
    """

    background: frozenset[int]
    left: frozenset[int]


class Leftovers:
    """Ends what one program leaves: its process group, and what escaped it by `setsid`.

    Where this process is a subreaper, an escaped process becomes its child once its own parent
    has ended. Such an orphan is a child that belongs to no other live `Program`'s session and
    was not there before.

    To be made before the program starts. One's orphans may end with another command that runs
    at the same time: nothing tells whose they are.
    """

    def __init__(self) -> None:
        self._before = frozenset(_children())

    async def end(self, program: Program) -> Ended:
        """End all of it, first politely, and reap it; also the program, if it still runs."""
        if Identity.of(program.pid) is None:
            await _pace(self._settle(program))
        found = self._living(program)
        if found:
            await _pace(self._ask(program))
        await _pace(self._kill(program, _KILL_SECONDS))
        return Ended(
            background=frozenset(found - {program.pid}), left=frozenset(self._living(program))
        )

    def end_now(self, program: Program) -> None:
        """Kill all of it and reap it, for who is cancelled and must not wait in the loop."""
        for _ in self._kill(program, _LAST_KILL_SECONDS):
            time.sleep(_PAUSE_SECONDS)

    def _settle(self, program: Program) -> Iterator[None]:
        """Leave it a moment to end by itself; like what follows, gives way between its looks."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while self._living(program) and time.monotonic() < deadline:
            yield

    def _ask(self, program: Program) -> Iterator[None]:
        """Send SIGTERM and wait a little for it to be obeyed."""
        deadline = time.monotonic() + _GRACE_SECONDS
        program.kill_group(signal.SIGTERM)
        told: set[int] = set()
        while self._living(program) and time.monotonic() < deadline:
            for pid in self._orphans(program):
                if pid not in told:
                    _signal(pid, signal.SIGTERM)
                    told.add(pid)
            yield

    def _kill(self, program: Program, seconds: float) -> Iterator[None]:
        """Send SIGKILL until nobody is left, and reap."""
        deadline = time.monotonic() + seconds
        while True:
            # The group before the orphans: who gets SIGKILL forks no more, and a dead member's
            # children are orphans by the time they are looked for. An orphan that is a zombie
            # counts as left, for the same reason: its own may have come since the look.
            program.kill_group(signal.SIGKILL)
            left = bool(_members(program.pid))
            for orphan in self._orphans(program):
                left = True
                for pid in _frozen(orphan):
                    _signal(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(orphan, os.WNOHANG)
            if not left or time.monotonic() > deadline:
                return
            yield

    def _living(self, program: Program) -> set[int]:
        orphans = {pid for pid in self._orphans(program) if Identity.of(pid) is not None}
        return _members(program.pid) | orphans

    def _orphans(self, program: Program) -> list[int]:
        spared = {other.pid for other in Program.live if other is not program}
        return [
            child.pid
            for child in _children()
            if child not in self._before
            and child.pid != program.pid
            and _session(child.pid) not in spared
        ]


async def _pace(rounds: Iterator[None]) -> None:
    for _ in rounds:
        await asyncio.sleep(_PAUSE_SECONDS)


def _frozen(orphan: int) -> list[int]:
    """Stop a process and all that descend from it; their pids.

    Parents first: who is stopped forks no more, so that a chain of forks that grows faster than
    it can be killed is at rest when its end is reached. And who is stopped reaps no more, so that
    a pid read from a stopped parent is still that child's: no stranger is ever signalled.
    """
    found = [orphan]
    for pid in found:  # grows meanwhile
        _signal(pid, signal.SIGSTOP)
        found += [child.pid for child in _children(pid)]
    return found


def _children(pid: int | None = None) -> list[psutil.Process]:
    """A process's children, those that wait to be reaped too; without a pid this process's."""
    try:
        # Ten times as fast as psutil's look at every process, which a program that forks and
        # ends, forks and ends, would outrun.
        lists = [
            tasks.read_text() for tasks in Path(f"/proc/{pid or 'self'}/task").glob("*/children")
        ]
    except OSError:
        lists = []
    with suppress(psutil.NoSuchProcess):
        if not lists:  # gone; or macOS, or a kernel without these files
            return psutil.Process(pid).children()
    found = []
    for child in " ".join(lists).split():
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(child)))
    return found


def _members(group: int) -> set[int]:
    """Who lives in a process group."""
    return {pid for pid in psutil.pids() if _group(pid) == group and Identity.of(pid) is not None}


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:  # gone, or on macOS none of our business
        return None


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # setuid programs are not ours to signal
        os.kill(pid, number)
