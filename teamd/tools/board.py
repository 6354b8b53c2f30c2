"""Tools for sharing out work: the task board."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from teamd.board.board import Board, Changed
from teamd.board.files import Tasks
from teamd.board.rules import Change
from teamd.board.task import Task, TaskStatus
from teamd.tools import Input, InputT, Tool
from teamd.tools.ids import TaskId


@dataclass
class _BoardTool(Tool[InputT]):
    """A tool with which one member reads or changes the board."""

    board: Board


class TaskCreateInput(Input):
    """Input of `task_create`."""

    subject: str = Field(description="what is to be done, in a few words")
    description: str = Field(default="", description="all that whoever does it has to know")
    blocked_by: tuple[TaskId, ...] = Field(
        default_factory=tuple, description="ids of tasks that have to be completed before"
    )
    role: str = Field(default="", description="the role that it is for; leave out for anybody")
    check: str = Field(
        default="", description="a bash command that must exit with 0 for it to be completed"
    )


class TaskCreate(_BoardTool[TaskCreateInput]):
    """Puts a task on the board, under the call's key, so that a repeated call adds no other."""

    name = "task_create"
    description = (
        "Put a task on the board that the whole team shares. It has no owner until somebody "
        "claims it."
    )

    def command_of(self, arguments: TaskCreateInput) -> str | None:
        return arguments.check.strip() or None

    async def call(self, arguments: TaskCreateInput, key: str) -> str:
        task = self.board.add(**dict(arguments), key=key)
        return f"task_id: {task.id}"


class TaskGetInput(Input):
    """Input of `task_get`."""

    task_id: TaskId


class TaskGet(_BoardTool[TaskGetInput]):
    """Shows a task."""

    name = "task_get"
    description = "Read all of a task: description, status, owner, what blocks it."

    async def call(self, arguments: TaskGetInput, _key: str) -> str:
        tasks = self.board.read()
        task = tasks.get(arguments.task_id)
        shown = {**task.to_json(), "blocked": bool(tasks.blockers(task))}
        return json.dumps(shown, indent=1, ensure_ascii=False)


class TaskUpdateInput(Input):
    """Input of `task_update`."""

    task_id: TaskId
    status: Literal["pending", "in_progress", "completed", "deleted"] | None = Field(
        default=None, description="pending gives it back, or opens it again"
    )
    owner: str | None = Field(
        default=None, description="whom to give it to; empty to take the owner away"
    )
    add_blocked_by: tuple[TaskId, ...] = Field(default_factory=tuple)
    remove_blocked_by: tuple[TaskId, ...] = Field(default_factory=tuple)
    check: str | None = Field(
        default=None, description="another check; only who made the task and lead may change it"
    )


class TaskUpdate(_BoardTool[TaskUpdateInput]):
    """Changes a task."""

    name = "task_update"
    description = (
        "Change a task. Only its owner completes it; completing it tells those whose tasks "
        "waited for it. Where there is a check, that is run first: if it fails you get mail, and "
        "the task is in progress again."
    )

    def command_of(self, arguments: TaskUpdateInput) -> str | None:
        return (arguments.check or "").strip() or None

    async def call(self, arguments: TaskUpdateInput, _key: str) -> str:
        facts = arguments.model_dump(exclude={"task_id"})
        if arguments.status is not None:
            facts["status"] = TaskStatus(arguments.status)
        changed = self.board.update(arguments.task_id, Change(**facts))
        return _describe_change(changed, self.board.read())


class TaskListInput(Input):
    """Input of `task_list`, which takes none."""


class TaskList(_BoardTool[TaskListInput]):
    """Shows the board."""

    name = "task_list"
    description = "See all tasks of the team: id, status, owner, what blocks them, subject."

    async def call(self, _: TaskListInput, _key: str) -> str:
        tasks = self.board.read()
        shown = [t for t in tasks.by_id.values() if t.status is not TaskStatus.DELETED]
        lines = [_line(task, tasks) for task in shown]
        return "\n".join([*lines, *tasks.damaged.values()]) or "the board is empty"


class ClaimTaskInput(Input):
    """Input of `claim_task`."""

    task_id: TaskId


@dataclass
class ClaimTask(_BoardTool[ClaimTaskInput]):
    """Claims a task, which becomes the teammate's current task."""

    begin_task: Callable[[], None]

    name = "claim_task"
    description = (
        "Take a task that nobody owns and nothing blocks: it is yours and in progress then. "
        "Of several who try, one gets it."
    )

    async def call(self, arguments: ClaimTaskInput, _key: str) -> str:
        task = self.board.claim(arguments.task_id).task
        self.begin_task()
        words = f"task_id: {task.id} is yours and in progress: {task.subject}"
        return f"{words}\n\n{task.description}" if task.description else words


def _line(task: Task, tasks: Tasks) -> str:
    facts = [str(task.status)]
    if task.owner:
        facts.append(f"owner {task.owner}")
    if blockers := tasks.blockers(task):
        facts.append(f"blocked by {', '.join(blockers)}")
    if task.role:
        facts.append(f"for a {task.role}")
    return f"task_id: {task.id} [{', '.join(facts)}] {task.subject}"


def _describe_change(changed: Changed, tasks: Tasks) -> str:
    freed = [tasks.by_id[task_id] for task_id in changed.freed if task_id in tasks.by_id]
    told = [f"no longer blocked: {_line(task, tasks)}" for task in freed]
    if changed.task.status is TaskStatus.CHECKING:
        told.append("its check runs now: it completes the task, or you get mail about what failed")
    return "\n".join([_line(changed.task, tasks), *told])
