"""What a teammate still has to do, as the board and the store of requests have it on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from teamd.approvals.store import Approvals
    from teamd.store.board import Board
    from teamd.store.roster import Roster


class OnRecord:
    """The open work of one teammate; a line each."""

    def __init__(self, board: Board, approvals: Approvals, roster: Roster, name: str) -> None:
        self._board = board
        self._roster = roster
        self._approvals = approvals
        self._name = name

    def tasks(self) -> Sequence[str]:
        """The tasks of the board that it owns and has not completed."""
        return [
            f"{task.id} [{task.status}] {task.subject}"
            for task in self._board.read().by_id.values()
            if task.status.open and task.is_of(self._name)
        ]

    def requests(self) -> Sequence[str]:
        """The requests that wait for its answer, and its own that wait for one."""
        lines = []
        for question in self._approvals.all():
            if question.is_open and question.to == self._name:
                lines.append(f"{question.type} {question.id} of {question.asker} waits for you")
            elif question.is_open and self._name in (question.asker, *question.listeners):
                lines.append(f"your {question.type} {question.id} waits for {question.to}")
        return lines

    def team(self) -> Sequence[str]:
        """Who else is in the team; whoever forgets one that is idle spawns it again."""
        return [
            f"{member.name} ({member.role}): {member.status}"
            for member in self._roster.read().members
            if member.name != self._name
        ]
