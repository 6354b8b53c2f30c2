"""The open work of a teammate, as the board and the store of requests have it on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from teamd.approvals.store import Approvals
    from teamd.board.board import Board
    from teamd.team.roster import Roster


def list_open_work(
    name: str, board: Board, approvals: Approvals, roster: Roster
) -> Sequence[tuple[str, Sequence[str]]]:
    """Return what a summary restates of a teammate: titles, and the lines below each."""
    # Whoever forgets a teammate that is idle spawns it again.
    team = [
        f"{member.name} ({member.role}): {member.status}"
        for member in roster.read().members
        if member.name != name
    ]
    tasks = [
        f"{task.id} [{task.status}] {task.subject}"
        for task in board.read().by_id.values()
        if task.status.open and task.is_of(name)
    ]
    return (
        ("Your teammates:", team),
        ("Your open tasks on the board:", tasks),
        ("Open requests:", list(_requests(name, approvals))),
    )


def _requests(name: str, approvals: Approvals) -> Iterator[str]:
    """Yield the requests that wait for its answer, and its own that wait for one."""
    for question in approvals.all():
        if question.is_open and question.to == name:
            yield f"{question.type} {question.id} of {question.asker} waits for you"
        elif question.is_open and name in (question.asker, *question.listeners):
            yield f"your {question.type} {question.id} waits for {question.to}"
