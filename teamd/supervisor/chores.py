"""What the supervisor does for the task board: nobody who has gone keeps a task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from teamd.errors import StoreError
from teamd.states import Status
from teamd.store.board_files import id_in
from teamd.store.task_owners import gone_from

if TYPE_CHECKING:
    from teamd.journal import Journal
    from teamd.store.board import Board
    from teamd.store.roster import Team
    from teamd.store.watch import Watch

PATIENCE_SECONDS: Final = 1.0  # a stopped writer must not stop the supervisor
_GONE: Final = (Status.SHUTDOWN, Status.FAILED)


class Chores:
    """Looks at the board when somebody has gone or ended, at the start, and now and then.

    Args:
        board: in the hands of `teamd`.
        watch: of the tasks' folder.
        round_seconds: how long to rely on having seen everything.
    """

    def __init__(
        self, board: Board, watch: Watch, journal: Journal, *, round_seconds: float
    ) -> None:
        self._board = board
        self._watch = watch
        self._journal = journal
        self._round_seconds = round_seconds
        self._gone: set[str] = set()
        self._due_at = 0.0

    def fileno(self) -> int:
        """A descriptor that is readable when the board may have changed."""
        return self._watch.fileno()

    @property
    def recheck_seconds(self) -> float:
        """How long to rely on that descriptor alone."""
        return self._watch.recheck_seconds

    def board_changed(self) -> bool:
        """Whether a task may have changed since the last call."""
        names = self._watch.changed()
        return names is None or any(map(id_in, names))  # without names only a look can tell

    def be_due(self) -> None:
        """Look at the next opportunity: a process has ended, maybe in the middle of telling."""
        self._due_at = 0.0

    def look(self, team: Team) -> None:
        """Give back the tasks of those who have gone, and tell what was left untold."""
        gone = {member.name for member in team.members if member.status in _GONE}
        if gone <= self._gone and time.monotonic() < self._due_at:
            self._gone = gone
            return
        self._gone = gone
        try:
            for task in self._board.release(gone_from(team)):
                self._journal.note("task released", task=task.id, reason=task.notes[-1])
            self._board.flush()
        except StoreError as error:  # it stands in the files: a later look finds it again
            self._journal.error("board not seen to", error)
            self._due_at = time.monotonic() + PATIENCE_SECONDS
        else:
            self._due_at = time.monotonic() + self._round_seconds
