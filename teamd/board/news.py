"""Mail about changes of the board, and the members that may start a task after a change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from teamd.board import rules
from teamd.board.files import Tasks
from teamd.board.task import Task, TaskStatus
from teamd.messages import LEAD, TEAMD, Message
from teamd.team.roster import Team

_LONGEST_DESCRIPTION: Final = 2000
_NEXT_STEP: Final = (
    "When it is done, set its status to completed with task_update; if you cannot go on, set it "
    "to pending, and tell the members concerned why."
)


def assignment_mail(task: Task, tasks: Tasks, *, by: str) -> Message:
    """Return mail to the new owner of a task."""
    text = f"{by} gave you task {task.id}: {_whole(task)}"
    if blockers := tasks.blockers(task):
        text += f"\n\nIt is blocked by {', '.join(blockers)}; you get mail when it is not any more."
    return _about(task, text, by=by, to=task.owner)


def claim_mail(task: Task) -> Message:
    """Return mail to an idle teammate for which the task was claimed."""
    text = f"You are free, and so was task {task.id}, so it is yours now: {_whole(task)}"
    return _about(task, text, by=TEAMD, to=task.owner)


def unblocked_mail(
    changed: Task, before: Tasks, after: Tasks, *, team: Team, by: str
) -> Iterator[Message]:
    """Yield mail to the owners of the tasks that a change has freed, or else to their makers."""
    for task in after.freed_since(before):
        to = task.owner or task.created_by
        member = team.find(to)
        if to.lower() == by.lower() or (member is None and not task.owner):
            continue  # the member itself sees the result; a person looks at the board
        text = (
            f"Nothing blocks task {task.id} ({task.subject}) any more: "
            f"task {changed.id} ({changed.subject}) is {changed.status}. "
            + ("It is yours." if task.owner else "It has no owner yet; claim_task takes it.")
        )
        yield _about(task, text, by=by, to=member.name if member else to)


def failure_mail(task: Task, to: str, output: str, most: int) -> Iterator[Message]:
    """Yield mail about the last failed check.

    Args:
        task: the task after the check.
        to: its owner or maker.
        output: the end of the check's output.
        most: the lead gets mail after this many failures, and again after each further `most`.
    """
    said = f"The end of its output:\n\n{output}" if output else "It wrote nothing."
    ended = rules.describe(task.attempts[-1])
    text = (
        f"The check of task {task.id} ({task.subject}) failed: {ended}. The task is {task.status} "
        f"again. Fix it, then set its status to completed once more.\n\n{said}"
    )
    yield _failure(task, text, to)
    count = rules.count_failures(task)
    if count % most == 0 and to != LEAD:
        text = (
            f"The check of task {task.id} ({task.subject}) of {to} has failed {count} times; the "
            f"last time {ended}. {to} has it still. To change what is checked: "
            f"`teamctl task update {task.id} --check COMMAND`, or task_update.\n\n{said}"
        )
        yield _failure(task, text, LEAD)


def find_claimers(team: Team, changed: frozenset[str], before: Tasks, tasks: Tasks) -> list[str]:
    """Return the members that may start a task themselves after a change of these tasks."""
    there = tasks.by_id.values()
    told = [task for task in there if not changed.isdisjoint((task.id, *task.blocked_by))]
    free = [task for task in told if task.status is TaskStatus.PENDING and not tasks.blockers(task)]
    looks = [look.by_id[one] for look in (before, tasks) for one in changed if one in look.by_id]
    had = {task.owner.lower() for task in looks}
    return [
        member.name
        for member in team.members
        if member.name.lower() in had
        or any(
            rules.free_for(task, name=member.name, role=member.role, tasks=tasks) for task in free
        )
    ]


def _about(task: Task, text: str, *, by: str, to: str) -> Message:
    extra = {"summary": f"task {task.id}: {task.subject}", "task_id": task.id}
    return Message(sender=by, to=to, content=text.replace("\0", "\ufffd"), extra=extra)


def _whole(task: Task) -> str:
    text = task.description.strip()
    if len(text) > _LONGEST_DESCRIPTION:
        text = f"{text[:_LONGEST_DESCRIPTION]} … (task_get shows all of it)"
    return "\n\n".join(part for part in (task.subject, text, _NEXT_STEP) if part)


def _failure(task: Task, text: str, to: str) -> Message:
    extra = {"summary": f"task {task.id}: its check failed", "task_id": task.id}
    return Message(sender=TEAMD, to=to, content=text.replace("\0", "\ufffd"), extra=extra)
