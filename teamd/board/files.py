"""Reads the files of the board.

Files are replaced as a whole, so a reader without the lock sees each task in one state.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from teamd.board.task import Task
from teamd.errors import StoreError, StrangeFile, TeamError, translate_os_errors
from teamd.files import files
from teamd.files.file_stamp import Version, is_settled, version_of
from teamd.files.paths import TeamPaths
from teamd.files.safe_open import check_folder

_MOST_NAMED: Final = 20
_TASK_FILE: Final = re.compile(r"([1-9][0-9]{0,17})\.json", re.ASCII)


class UnknownTask(TeamError):
    """No task has this id."""

    def __init__(self, wanted: str, known: Iterable[str]) -> None:
        ids = list(known)
        more = f"{ids[0]} to {ids[-1]}" if len(ids) > _MOST_NAMED else ", ".join(ids)
        there = f"there are: {more}" if ids else "the board is empty; task_create makes one"
        super().__init__(f"no task has the id {wanted!r}; {there}")

    def for_person(self) -> str:
        """Return the sentence with commands in place of tools."""
        return str(self).replace("task_create", "`teamctl task add`")


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks at one moment.

    Attributes:
        by_id: in the order in which they were made.
        damaged: a sentence for each damaged file, by the id in its name.
    """

    by_id: Mapping[str, Task] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)

    def get(self, task_id: str) -> Task:
        """Return the task with an id.

        Raises:
            UnknownTask: no task has this id.
            StoreError: its file is damaged.
        """
        wanted = task_id.strip().removeprefix("#")
        if wanted in self.damaged:
            raise StoreError(self.damaged[wanted])
        if wanted not in self.by_id:
            raise UnknownTask(task_id, self.by_id)
        return self.by_id[wanted]

    def blockers(self, task: Task) -> tuple[str, ...]:
        """Return the ids of the open or damaged tasks for which a task waits."""
        return tuple(
            other
            for other in task.blocked_by
            if other in self.damaged or (other in self.by_id and self.by_id[other].status.open)
        )

    def with_task(self, task: Task) -> Tasks:
        """Return a copy with this task."""
        return Tasks({**self.by_id, task.id: task}, self.damaged)

    def freed_since(self, before: Tasks) -> list[Task]:
        """Return the open tasks that were blocked before and are not blocked now."""
        return [
            task
            for task in self.by_id.values()
            if task.status.open
            and task.id in before.by_id
            and before.blockers(before.by_id[task.id])
            and not self.blockers(task)
        ]

    def cycle(self, start: str) -> list[str]:
        """Return the ids of a circle of blocked tasks through `start`; empty without one.

        Completed tasks count, too, since they can be reopened.
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
    """Return the id of the task in a file of this name; `None` for other files."""
    found = _TASK_FILE.fullmatch(file_name)
    return found[1] if found else None


def ids_in(folder: Path) -> list[str]:
    """Return the ids of all files in ascending order."""
    with translate_os_errors(folder):
        check_folder(folder)
        try:
            ids = (id_in(path.name) for path in folder.iterdir())
            return sorted(filter(None, ids), key=int)
        except FileNotFoundError:  # a team of an earlier version
            return []


def read_all(paths: TeamPaths) -> Tasks:
    """Read every task once; see `TaskFiles` for repeated reads."""
    return TaskFiles(paths).read()


class TaskFiles:
    """The files of one board; a file that has not changed is not read again.

    Each change of the board reads all tasks under the lock, and finished tasks stay forever.
    """

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._known: dict[str, tuple[Version | None, Task]] = {}

    def read(self) -> Tasks:
        """Return every task, and a sentence about each damaged file.

        Raises:
            StoreError: the folder itself cannot be read.
        """
        before, self._known = self._known, {}
        tasks: dict[str, Task] = {}
        damaged: dict[str, str] = {}
        for task_id in ids_in(self._paths.tasks):
            version = version_of(self._paths.task(task_id))
            settled = is_settled(version)  # determined before the read
            known = before.get(task_id)
            try:
                same = known is not None and known[0] == version
                task = known[1] if known and same else self._read(task_id)
            except _Damaged as error:
                damaged[task_id] = str(error)
                continue
            if task is not None:
                tasks[task_id] = task
                if settled:
                    self._known[task_id] = version, task
        return Tasks(tasks, damaged)

    def read_one(self, task_id: str) -> Task | None:
        """Return one task; `None` if it does not exist or its file is damaged.

        Raises:
            StoreError: the file cannot be read at the moment.
        """
        with suppress(_Damaged):
            return self._read(task_id)
        return None

    def _read(self, task_id: str) -> Task | None:
        """Read one file; `None` if it was removed meanwhile."""
        path = self._paths.task(task_id)
        try:
            content = files.read(path)
        except StrangeFile as error:
            raise _Damaged(str(error)) from error
        except StoreError as error:
            with translate_os_errors(path):
                regular = path.is_file()
            if regular:  # the caller may try again
                raise
            raise _Damaged(str(error)) from error  # for example a folder of that name
        try:
            return None if content is None else Task.decode(content, named=task_id)
        except ValueError as error:
            sentence = f"{path} is damaged ({error}); repair it, or move it away"
            raise _Damaged(sentence) from error


class _Damaged(Exception):
    """A file does not contain a task; `str()` is a sentence."""


def next_id(folder: Path, fd: int) -> str:
    """Return an id that was never used, not even by a task whose file was removed.

    Args:
        folder: the folder of the tasks.
        fd: the locked file in which `note_id` has stored the last id.
    """
    last = 0
    with suppress(ValueError):  # empty at first, or torn or edited
        last = int(files.read_descriptor(fd).decode())
    there = ids_in(folder)
    return str(1 + max(last, int(there[-1]) if there else 0))


def note_id(fd: int, task_id: str) -> None:
    """Store the id of a new task, in case its file is removed."""
    with suppress(OSError):  # a full disk: its file has the id as well
        os.ftruncate(fd, 0)  # in place, because the lock is on this inode
        os.pwrite(fd, f"{task_id}\n".encode(), 0)
