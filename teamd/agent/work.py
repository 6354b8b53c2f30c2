"""A teammate's work on record: the next task of the board, and what is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from teamd.approvals.store import Approvals
    from teamd.board.board import Board
    from teamd.journal import Journal
    from teamd.team.roster import Roster


def claim_next(board: Board, role: Callable[[], str], journal: Journal) -> bool:
    """Claim the next free task for an idle teammate; return whether there is mail about one now.

    A claim and its mail are one write of the task's file, see `Board`: a process that is killed
    after it finds its mail again.
    """
    try:
        told = board.flush()
        task = board.take_next(role())
    except StoreError as error:  # the next look finds it again; nothing else is in its way
        journal.error("no look at the board", error)
        return False
    if task is None:
        return told
    journal.note("task claimed", task=task.id)
    return not task.untold


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
