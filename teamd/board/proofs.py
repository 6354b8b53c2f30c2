"""How a task is proven: what follows from its owner's claim, and from a run of its check."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from teamd.board.files import Tasks
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.messages import new_id

_LONGEST_COMMAND: Final = 300
NOTES_KEPT: Final = 20


def done(task: Task, team_check: str) -> Task:
    """Return a task whose owner says that it is done: where there is a check, that has to pass."""
    if not (task.check or team_check):
        return replace(task, status=TaskStatus.COMPLETED, proven=None)
    checking = replace(task, status=TaskStatus.CHECKING, proven=False)
    return replace(checking, claim=new_id(), kills=0)


def is_claimed(task: Task, claim: str) -> bool:
    """Return whether that is what is to be checked; another claim has come, or none is left."""
    return task.status is TaskStatus.CHECKING and task.claim == claim


def judged(task: Task, attempt: Attempt | None) -> Task:
    """Return a task after a run of its check; `None` where no check is left by now."""
    if attempt is None:
        return replace(task, status=TaskStatus.COMPLETED, proven=None, claim="", kills=0)
    tried = replace(task, attempts=(*task.attempts, attempt), claim="", kills=0)
    if attempt.passed:
        return replace(tried, status=TaskStatus.COMPLETED, proven=True)
    begun = TaskStatus.IN_PROGRESS if task.owner else TaskStatus.PENDING
    return replace(tried, status=begun, proven=False)


def reopened(task: Task, tasks: Tasks, *, note: str) -> Task:  # noqa: ARG001 -- a rule of the board
    """Return a completed task that was not merged as one to do; the same note does it once."""
    if task.status is not TaskStatus.COMPLETED or note in task.notes:
        return task
    begun = TaskStatus.IN_PROGRESS if task.owner else TaskStatus.PENDING
    return replace(task, status=begun, proven=False, notes=(*task.notes, note)[-NOTES_KEPT:])


def failures(task: Task) -> int:
    """Return how often its check has failed since it last passed."""
    count = 0
    for attempt in task.attempts:
        count = 0 if attempt.passed else count + 1
    return count


def in_a_word(task: Task, team_check: str = "") -> str:
    """Say how far a task is proven; what has no check can only be believed."""
    if task.status is TaskStatus.COMPLETED:
        return "proven" if task.proven else "unproven"
    if task.status is TaskStatus.CHECKING:
        return "checking"
    if count := failures(task):
        return f"failed {count} times" if count > 1 else "failed once"
    return "not yet" if task.check or team_check else "no check"


def describe(attempt: Attempt) -> str:
    """Say how a run of a check ended."""
    command = " ".join(attempt.command.split())
    if len(command) > _LONGEST_COMMAND:
        command = f"{command[:_LONGEST_COMMAND]} …"
    if attempt.why:
        return f"`{command}`: {attempt.why}"
    return f"`{command}` ended with {_ending(attempt)}"


def describe_briefly(attempt: Attempt) -> str:
    """Say it where there is one command alone, and it has been named."""
    return attempt.why or _ending(attempt)


def _ending(attempt: Attempt) -> str:
    return f"exit status {attempt.status} after {attempt.seconds:.1f} s"
