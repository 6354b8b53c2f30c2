"""Power cuts of one host: all its processes end at once, and its disk keeps synced data.

Unsynced data is lost, kept or torn, by the model of `tests.process.powercut.disk`.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Final

import psutil

from teamd.files import pidfile
from tests.e2e.harness import Project
from tests.process.powercut.disk import (
    MODELS,
    TOPS,
    Disk,
    Recording,
    State,
    is_of_commands,
    put_state,
)

_TEAM: Final = ".team"
_LOGS: Final = "logs"  # not recorded and only for test output, so kept
_END_SECONDS: Final = 10.0
_BY_CHANCE: Final = 0.5  # the share of cuts that choose separately for each file and folder


class Power:
    """The power of one host.

    Args:
        project: a project without running processes; the files in its folder count as synced.
        chance: chooses the data that a cut leaves.
    """

    def __init__(self, project: Project, chance: Random) -> None:
        self._project = project
        self._chance = chance
        self._cuts = 0
        self._recording = Recording(project)

    @contextmanager
    def between(self) -> Iterator[bool]:
        """Yield whether no process is inside a recorded call, and prevent new calls in the block.

        A call that is killed in the middle would take effect without being recorded.
        """
        with self._recording.log.open("ab") as log:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def cut(self, others: Sequence[int]) -> None:
        """Cut the power, and put the disk into a possible state; no process runs afterwards.

        Args:
            others: processes besides teamd and its descendants.
        """
        with self._recording.log.open("ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            self._kill_all(others)
        self._recording.check()
        self._put(self._state())

    def _state(self) -> State:
        disk = Disk(self._recording.before)
        for record in self._recording.records():
            if record[1] != "mark":
                disk.apply(record)
        if self._chance.random() < _BY_CHANCE:
            state = disk.after_by_chance(self._chance)
        else:
            state = disk.after(self._chance.choice([*MODELS]))
        return {place: data for place, data in state.items() if not is_of_commands(place)}

    def _put(self, state: State) -> None:
        """Replace all files by a state; the former files are kept for debugging."""
        self._cuts += 1
        folder, before = self._project.folder, self._project.root / f"before-cut-{self._cuts}"
        before.mkdir()
        self._recording.log.rename(before / "powercut.log")
        for place in TOPS:
            if (folder / place).exists():
                (folder / place).rename(before / place)
        put_state(folder, state)
        shutil.copytree(before / _TEAM / _LOGS, folder / _TEAM / _LOGS, dirs_exist_ok=True)
        self._recording = Recording(self._project)

    def _kill_all(self, others: Sequence[int]) -> None:
        """Kill all processes, without any of them noticing that another has ended."""
        roots = [psutil.Process(pid) for pid in others]
        if (teamd := pidfile.supervisor(self._project.paths)) is not None:
            roots.append(psutil.Process(teamd.pid))
        for process in roots:
            process.send_signal(signal.SIGSTOP)
        while under := [one for root in roots for one in _children(root)]:
            _end(under)
        _end(roots)


def _children(process: psutil.Process) -> list[psutil.Process]:
    found: list[psutil.Process] = process.children(recursive=True)
    return [one for one in found if _lives(one)]


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _end(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs([one for one in processes if _lives(one)], _END_SECONDS)
