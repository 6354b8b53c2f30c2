"""Auto-claim: an idle teammate takes the next task of the board that nobody has begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.board.board import Board
    from teamd.journal import Journal


class AutoClaim:
    """The board in the eyes of an idle teammate. What it claims comes as mail.

    A claim and its mail are one write of the task's file, see `Board`: a process that is killed
    after it finds its mail again.

    Args:
        board: in the hands of the teammate.
        role: the teammate's, asked each time.
    """

    def __init__(self, board: Board, role: Callable[[], str], journal: Journal) -> None:
        self._board = board
        self._role = role
        self._journal = journal

    def claim_next(self) -> bool:
        """Claim the next free task; return whether there is mail about one now."""
        try:
            told = self._board.flush()
            task = self._board.take_next(self._role())
        except StoreError as error:  # the next look finds it again; nothing else is in its way
            self._journal.error("no look at the board", error)
            return False
        if task is None:
            return told
        self._journal.note("task claimed", task=task.id)
        return not task.untold
