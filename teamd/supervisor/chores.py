"""What the supervisor does for the task board: nobody who has gone keeps a task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from teamd.errors import StoreError
from teamd.states import Status
from teamd.store.task_owners import gone_from

if TYPE_CHECKING:
    from teamd.journal import Journal
    from teamd.store.board import Board
    from teamd.store.roster import Team

_GONE = (Status.SHUTDOWN, Status.FAILED)


class Chores:
    """Looks at the board when somebody has gone or ended, at the start, and now and then.

    Args:
        board: in the hands of `teamd`.
        round_seconds: how long to rely on having seen everything.
    """

    def __init__(self, board: Board, journal: Journal, *, round_seconds: float) -> None:
        self._board = board
        self._journal = journal
        self._round_seconds = round_seconds
        self._gone: set[str] = set()
        self._due_at = 0.0

    def be_due(self) -> None:
        """Look at the next opportunity: a process has ended, maybe in the middle of telling."""
        self._due_at = 0.0

    def look(self, team: Team) -> None:
        """Give back the tasks of those who have gone, and tell what was left untold."""
        gone = {member.name for member in team.members if member.status in _GONE}
        if gone <= self._gone and time.monotonic() < self._due_at:
            self._gone = gone
            return
        self._due_at = time.monotonic() + self._round_seconds
        try:
            for task in self._board.release(gone_from(team)):
                self._journal.note("task released", task=task.id, reason=task.notes[-1])
            self._board.flush()
        except StoreError as error:  # it stands in the files: the next look finds it again
            self._journal.error("board not seen to", error)
            return
        self._gone = gone
