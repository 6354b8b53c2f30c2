"""The files of the board: read at any time, all of them.

A file is replaced as a whole, so that whoever reads sees each task as it was at one moment.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from teamd.board.task import Task
from teamd.errors import StoreError, StrangeFile, TeamError, translate_os_errors
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.files.safe_open import check_folder

_Version = tuple[int, int, int, int, int]

_MOST_NAMED: Final = 20
_TICK_NANOSECONDS: Final = 100_000_000  # more than any kernel's
_TASK_FILE: Final = re.compile(r"([1-9][0-9]{0,17})\.json", re.ASCII)


class UnknownTask(TeamError):
    """An id that no task has."""

    def __init__(self, wanted: str, known: Iterable[str]) -> None:
        ids = list(known)
        more = f"{ids[0]} to {ids[-1]}" if len(ids) > _MOST_NAMED else ", ".join(ids)
        there = f"there are: {more}" if ids else "the board is empty; task_create makes one"
        super().__init__(f"no task has the id {wanted!r}; {there}")

    def for_person(self) -> str:
        """The same, for one who has commands."""
        return str(self).replace("task_create", "`teamctl task add`")


@dataclass(frozen=True, slots=True)
class Tasks:
    """A look at the board.

    Attributes:
        by_id: in the order in which they were made.
        damaged: files that are no task: a sentence each, by the id in the name.
    """

    by_id: Mapping[str, Task] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)

    def get(self, task_id: str) -> Task:
        """The task of that id.

        Raises:
            UnknownTask: there is none.
            StoreError: its file is damaged.
        """
        wanted = task_id.strip().removeprefix("#")
        if wanted in self.damaged:
            raise StoreError(self.damaged[wanted])
        if wanted not in self.by_id:
            raise UnknownTask(task_id, self.by_id)
        return self.by_id[wanted]

    def blockers(self, task: Task) -> tuple[str, ...]:
        """Return what it waits for: neither completed nor deleted, or too damaged to tell."""
        return tuple(
            other
            for other in task.blocked_by
            if other in self.damaged or (other in self.by_id and self.by_id[other].status.open)
        )

    def with_task(self, task: Task) -> Tasks:
        """The same board with this task in it."""
        return Tasks({**self.by_id, task.id: task}, self.damaged)

    def freed_since(self, before: Tasks) -> list[Task]:
        """Open tasks that were blocked before and are not any more."""
        return [
            task
            for task in self.by_id.values()
            if task.status.open
            and task.id in before.by_id
            and before.blockers(before.by_id[task.id])
            and not self.blockers(task)
        ]

    def cycle(self, start: str) -> list[str]:
        """A way from a task over what it is blocked by back to itself; empty where there is none.

        Completed ones count, too: whoever reopens one must not end in a circle.
        """
        ways = {start: [start]}
        waiting = [start]
        while waiting:
            here = waiting.pop()
            task = self.by_id.get(here)
            for other in task.blocked_by if task else ():
                if other == start:
                    return [*ways[here], start]
                if other not in ways:
                    ways[other] = [*ways[here], other]
                    waiting.append(other)
        return []


def id_in(file_name: str) -> str | None:
    """The id of the task that a file in the folder holds; `None` for files of another kind."""
    found = _TASK_FILE.fullmatch(file_name)
    return found[1] if found else None


def ids_in(folder: Path) -> list[str]:
    """The ids of all files, in the order in which they were given."""
    with translate_os_errors(folder):
        return sorted(_entries(folder), key=int)


def read_all(paths: TeamPaths) -> Tasks:
    """Read every task, for one that looks once; see `TaskFiles`."""
    return TaskFiles(paths).read()


class TaskFiles:
    """The files of one board: those that have not changed since are not read again."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._known: dict[str, tuple[_Version, Task]] = {}

    def read(self) -> Tasks:
        """Every task as it is at the moment; what cannot be read is told and hides no other.

        Raises:
            StoreError: the folder itself cannot be read.
        """
        with translate_os_errors(self._paths.tasks):
            now, entries = time.time_ns(), _entries(self._paths.tasks)
        before, self._known = self._known, {}
        tasks: dict[str, Task] = {}
        damaged: dict[str, str] = {}
        for task_id in sorted(entries, key=int):
            version = _version(entries[task_id])
            known = before.get(task_id)
            try:
                same = known is not None and known[0] == version
                task = known[1] if known and same else self._read(task_id)
            except _Damaged as error:
                damaged[task_id] = str(error)
                continue
            if task is not None:
                tasks[task_id] = task
                if version is not None and _settled(version, now):
                    self._known[task_id] = version, task
        return Tasks(tasks, damaged)

    def read_one(self, task_id: str) -> Task | None:
        """One task as it is at the moment; `None` where there is none, or its file is damaged.

        Raises:
            StoreError: it cannot be read at the moment.
        """
        with suppress(_Damaged):
            return self._read(task_id)
        return None

    def _read(self, task_id: str) -> Task | None:
        """Read one file; `None` where somebody has removed it meanwhile."""
        path = self._paths.task(task_id)
        try:
            content = files.read(path)
        except StrangeFile as error:
            raise _Damaged(str(error)) from error
        except StoreError as error:
            with translate_os_errors(path):
                regular = path.is_file()
            if regular:  # what cannot be read at the moment is for the caller to try again
                raise
            raise _Damaged(str(error)) from error  # a folder of that name, say
        try:
            return None if content is None else Task.decode(content, named=task_id)
        except ValueError as error:
            sentence = f"{path} is damaged ({error}); mend it, or move it away"
            raise _Damaged(sentence) from error


class _Damaged(Exception):
    """A file that is no task; `str()` is a sentence."""


def _entries(folder: Path) -> dict[str, os.DirEntry[str]]:
    """The files of a folder by the ids in their names."""
    check_folder(folder)
    try:
        with os.scandir(folder) as found:
            named = ((id_in(entry.name), entry) for entry in found)
            return {task_id: entry for task_id, entry in named if task_id is not None}
    except FileNotFoundError:  # a team of an earlier version
        return {}


def _version(entry: os.DirEntry[str]) -> _Version | None:
    """Return what differs whenever a file was replaced or changed; `None` where it has gone."""
    try:
        now = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def _settled(version: _Version, now: int) -> bool:
    """Return whether a file that changes from now on will have another version.

    A kernel's time goes in ticks, and a number of a file is given again: what changed a moment ago
    may change once more and look the same. git calls that "racily clean", and reads it again, too.
    """
    return max(version[-2:]) < now - _TICK_NANOSECONDS


def next_id(folder: Path, fd: int) -> str:
    """An id that no task has, nor had: also one whose file somebody removed.

    Args:
        folder: of the tasks.
        fd: of the file that is locked, in which `note_id` has noted the last one.
    """
    last = 0
    with suppress(ValueError):  # empty at first; what was torn or edited counts for nothing
        last = int(files.read_descriptor(fd).decode())
    there = ids_in(folder)
    return str(1 + max(last, int(there[-1]) if there else 0))


def note_id(fd: int, task_id: str) -> None:
    """Remember the id of a task that stands, for when its file is removed."""
    with suppress(OSError):  # a full disk: its file tells the id as well
        os.ftruncate(fd, 0)  # in place: the lock is on this very file
        os.pwrite(fd, f"{task_id}\n".encode(), 0)
