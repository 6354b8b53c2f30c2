"""The notices about work that nobody continues while the whole team is idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from teamd.board.files import Tasks
from teamd.board.task import Task, TaskStatus
from teamd.errors import StoreError
from teamd.files.file_stamp import remember
from teamd.files.paths import TeamPaths
from teamd.overview.members import MemberView
from teamd.overview.notices import Notice, describe_idle_owners, describe_unmerged
from teamd.team.member import Member
from teamd.team.states import Status

if TYPE_CHECKING:
    from teamd.merges.queue import Entry  # loads git's parts, which few teams need

_LISTED_SECONDS: Final = 86_400.0  # afterwards the queue drops an entry when it is written again


def find_idle_owners(members: Iterable[Member], tasks: Tasks) -> list[tuple[Task, str]]:
    """Return the tasks that are in progress although their owners are idle, with the owners."""
    idle = {member.name for member in members if member.status is Status.IDLE}
    started = (one for one in tasks.by_id.values() if one.status is TaskStatus.IN_PROGRESS)
    return [(task, task.owner) for task in started if task.owner in idle]


def find_unmerged(entries: Iterable[Entry]) -> list[Entry]:
    """Return the last entry of each teammate whose last work was not merged."""
    last = {entry.teammate: entry for entry in entries}
    return [entry for entry in last.values() if entry.state in ("conflict", "failed")]


class StandstillReader:
    """Finds unfinished work of an idle team.

    Args:
        board: reads the tasks.
    """

    def __init__(self, paths: TeamPaths, board: Callable[[], Tasks]) -> None:
        self._paths = paths
        self._board = board
        self._unmerged = remember(paths.queue, partial(_read_unmerged, paths))

    def read(self, members: Sequence[MemberView]) -> Iterator[Notice]:
        """Yield the notices; none while anybody works."""
        if not members or any(view.has_work for view in members):
            return
        idle = [view.member for view in members if view.state == Status.IDLE]
        if stuck := find_idle_owners(idle, self._board()):
            yield describe_idle_owners(self._paths, [(task.id, owner) for task, owner in stuck])
        names, oldest = {view.name for view in members}, time.time() - _LISTED_SECONDS
        entries = (one for one in self._unmerged() if one.teammate in names and one.when > oldest)
        if unmerged := [(entry.teammate, str(entry.state)) for entry in entries]:
            yield describe_unmerged(self._paths, unmerged)


def _read_unmerged(paths: TeamPaths) -> list[Entry]:
    if not paths.queue.exists():
        return []
    from teamd.merges import queue  # noqa: PLC0415 -- loads git's parts, which few teams need

    try:
        return find_unmerged(queue.read(paths).all)
    except StoreError:  # `teamctl queue` reports it
        return []
