"""The mail that a change to the board makes: to whom, and in which words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from teamd.messages import TEAMD, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.board.files import Tasks
    from teamd.board.task import Task
    from teamd.team.roster import Team

_LONGEST_DESCRIPTION: Final = 2000
_NEXT_STEP: Final = (
    "When it is done, set its status to completed with task_update; if you cannot go on, set it "
    "to pending, and say why to whoever has to know."
)


def given(task: Task, tasks: Tasks, *, by: str) -> Message:
    """To its new owner: it is yours."""
    text = f"{by} gave you task {task.id}: {_whole(task)}"
    if blockers := tasks.blockers(task):
        text += f"\n\nIt is blocked by {', '.join(blockers)}; you get mail when it is not any more."
    return _about(task, text, by=by, to=task.owner)


def found(task: Task) -> Message:
    """To a teammate that claimed it while it had nothing else to do."""
    text = f"You are free, and so was task {task.id}, so it is yours now: {_whole(task)}"
    return _about(task, text, by=TEAMD, to=task.owner)


def freed(changed: Task, before: Tasks, after: Tasks, *, team: Team, by: str) -> Iterator[Message]:
    """To those who waited for a task: the owners, and where there is none whoever made it."""
    for task in after.freed_since(before):
        to = task.owner or task.created_by
        member = team.find(to)
        if to.lower() == by.lower() or (member is None and not task.owner):
            continue  # who did it reads it in the result; a person looks at the board
        text = (
            f"Nothing blocks task {task.id} ({task.subject}) any more: "
            f"task {changed.id} ({changed.subject}) is {changed.status}. "
            + ("It is yours." if task.owner else "It has no owner yet; claim_task takes it.")
        )
        yield _about(task, text, by=by, to=member.name if member else to)


def _about(task: Task, text: str, *, by: str, to: str) -> Message:
    extra = {"summary": f"task {task.id}: {task.subject}", "task_id": task.id}
    return Message(sender=by, to=to, content=text.replace("\0", "\ufffd"), extra=extra)


def _whole(task: Task) -> str:
    text = task.description.strip()
    if len(text) > _LONGEST_DESCRIPTION:
        text = f"{text[:_LONGEST_DESCRIPTION]} … (task_get shows all of it)"
    return "\n\n".join(part for part in (task.subject, text, _NEXT_STEP) if part)
