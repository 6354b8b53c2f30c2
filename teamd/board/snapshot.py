"""All tasks at one moment, and which of them wait for which."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from teamd.errors import StoreError, TeamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from teamd.board.task import Task

_MOST_NAMED: Final = 20


class UnknownTask(TeamError):
    """An id that no task has."""

    def __init__(self, wanted: str, known: Iterable[str]) -> None:
        ids = list(known)
        more = f"{ids[0]} to {ids[-1]}" if len(ids) > _MOST_NAMED else ", ".join(ids)
        there = f"there are: {more}" if ids else "the board is empty; task_create makes one"
        super().__init__(f"no task has the id {wanted!r}; {there}")
        self.wanted = wanted

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
        """What it waits for: neither completed nor deleted, or so damaged that nobody knows."""
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
        came_from: dict[str, str] = {}
        waiting = [start]
        while waiting:
            here = waiting.pop()
            task = self.by_id.get(here)
            for other in task.blocked_by if task else ():
                if other == start:
                    return _way(came_from, start, here)
                if other not in came_from:
                    came_from[other] = here
                    waiting.append(other)
        return []


def _way(came_from: Mapping[str, str], start: str, end: str) -> list[str]:
    way = [end]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return [*reversed(way), start]
