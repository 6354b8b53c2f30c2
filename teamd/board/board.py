"""The task board: one file per task, changed by one writer at a time.

The mail about a change is written into the same file as the change (`untold`), delivered, and then
removed from the file. If a writer is killed in between, the next writer delivers the mail again,
with the same ids, and the receiver drops the duplicate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from teamd.board import news, rules
from teamd.board.files import TaskFiles, Tasks, next_id, note_id
from teamd.board.rules import Change
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.errors import NotAMessage, StoreError, translate_os_errors
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, Message
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamd.mail.routing import MailRouter


@dataclass(frozen=True, slots=True)
class Changed:
    """A changed task, and the ids of the tasks that it no longer blocks."""

    task: Task
    freed: tuple[str, ...] = ()


@dataclass(eq=False)
class Board:
    """The tasks of one team, as one member sees and changes them.

    Attributes:
        paths: the team.
        post: delivers the mail about changes.
        who: the member; its rights depend on this.
        check: the command that must pass for every task of the team.
        durable: whether a change is synced to disk when a call returns.
        patience_seconds: how long to wait for another writer.
    """

    paths: TeamPaths
    post: MailRouter
    who: str
    _: KW_ONLY
    check: str = ""
    durable: bool = True
    patience_seconds: float = locks.TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        self._files = TaskFiles(self.paths)

    def read(self) -> Tasks:
        """Return all tasks, read without a lock."""
        return self._files.read()

    def read_one(self, task_id: str) -> Task | None:
        """Return one task; `None` if it does not exist or its file is damaged."""
        return self._files.read_one(task_id)

    def add(
        self,
        subject: str,
        *,
        description: str = "",
        blocked_by: tuple[str, ...] = (),
        role: str = "",
        owner: str = "",
        check: str = "",
        key: str = "",
    ) -> Task:
        """Create a task; a second call with the same `key` returns the first task.

        Raises:
            TeamError: the subject is empty, or an id or the owner is unknown.
        """
        subject = rules.clean_subject(subject)
        owner = rules.resolve_owner(self.paths, owner)
        check = rules.clean_check(check)
        with self._writing() as (tasks, fd):
            made = (task for task in tasks.by_id.values() if key and task.key == key)
            if (again := next(made, None)) is not None:
                self.make_durable(again)
                return again
            links = rules.check_links("that is made", blocked_by, tasks)
            now = time.time()
            task = Task(
                id=next_id(self.paths.tasks, fd),
                subject=subject,
                description=description,
                owner=owner,
                blocked_by=links,
                role=role.strip(),
                created_by=self.who,
                created=now,
                updated=now,
                check=check,
                proven=False if check else None,
                key=key,
            )
            put = self._put(task, self._gifts(task, "", tasks))
            note_id(fd, task.id)
            return put

    def claim(self, task_id: str, *, owner: str | None = None) -> Changed:
        """Start a task as its owner, or let `owner` start it.

        Raises:
            TeamError: the task has another owner, is blocked, completed or deleted.
        """
        taker = self.who if owner is None else rules.resolve_owner(self.paths, owner)
        return self.apply(task_id, partial(rules.claim_for, owner=taker))

    def update(self, task_id: str, change: Change) -> Changed:
        """Change a task.

        Raises:
            TeamError: this member may not do that, an id or the owner is unknown, or tasks would
                wait for each other in a circle.
        """
        if change.owner:
            change = replace(change, owner=rules.resolve_owner(self.paths, change.owner))
        rule = partial(rules.apply_change, change=change, who=self.who, check=self.check)
        return self.apply(task_id, rule)

    def find_claim(self, task_id: str, claim: str) -> Task | None:
        """Return the task if this claim of it is still being checked."""
        task = self.read_one(task_id)
        return task if task is not None and rules.is_claimed(task, claim) else None

    def note_kill(self, task_id: str, claim: str) -> None:
        """Record that the checker of a claim was killed, possibly by the check itself."""
        with self._writing() as (tasks, _):
            task = tasks.by_id.get(task_id)
            if task is not None and rules.is_claimed(task, claim):
                self._put(replace(task, kills=task.kills + 1), [])

    def judge(
        self, task_id: str, claim: str, attempt: Attempt | None, output: str, *, most: int
    ) -> Task | None:
        """Complete a task after its check has passed, or return it; `None` for another claim.

        The mail about it is written together with the task, so that a kill neither doubles nor
        loses it.

        Args:
            task_id: the id of the task.
            claim: the claim that was checked.
            attempt: the run; `None` if the check was removed.
            output: the end of the check's output.
            most: the number of failures after which the lead gets mail.
        """
        with self._writing() as (before, _):
            task = before.by_id.get(task_id)
            if task is None or not rules.is_claimed(task, claim):
                return None
            new = replace(rules.apply_attempt(task, attempt), updated=time.time())
            if new.status is TaskStatus.COMPLETED:
                return self._put(new, self._freed_mail(new, before))
            to = task.owner or self._maker(task)
            return self._put(new, news.failure_mail(new, to, output, most))

    def take_next(self, role: str) -> Task | None:
        """Claim the first task that this member may start unasked, and mail it to the member.

        A member with a task in progress does not get another one.
        """
        if self._next(self.read(), role) is None:
            return None
        with self._writing() as (tasks, _):  # again, under the lock
            task = self._next(tasks, role)
            if task is None:
                return None
            taken = rules.claim_for(task, owner=self.who, tasks=tasks)
            return self._put(replace(taken, updated=time.time()), [news.claim_mail(taken)])

    def release(self, gone: Callable[[str], str | None]) -> list[Task]:
        """Take open tasks from owners that are gone.

        Args:
            gone: returns why an owner is gone, or `None` if it is not.
        """

        def left(tasks: Tasks) -> list[tuple[Task, str]]:
            # A task that its owner has marked done is checked nevertheless.
            held = (t for t in tasks.by_id.values() if t.status is not TaskStatus.CHECKING)
            owned = [t for t in held if t.status.open and t.owner]
            return [(task, why) for task in owned if (why := gone(task.owner)) is not None]

        if not left(self.read()):
            return []
        with self._writing() as (tasks, _):
            return [
                self._put(replace(rules.release(task, why), updated=time.time()), [])
                for task, why in left(tasks)
            ]

    def flush(self) -> bool:
        """Deliver the mail that killed writers have left; return whether all of it is delivered."""
        if not any(task.untold for task in self.read().by_id.values()):
            return False
        with self._writing() as (tasks, _):  # which delivers that mail first
            return not any(task.untold for task in tasks.by_id.values())

    def make_durable(self, task: Task) -> None:
        """Sync an existing task, so that a result that relies on it survives a power cut."""
        if self.durable:
            files.make_durable(self.paths.task(task.id))

    def apply(self, task_id: str, rule: Callable[..., Task]) -> Changed:
        """Change a task by a rule, which receives it and all tasks."""
        with self._writing() as (before, _):
            old = before.get(task_id)
            new = rule(old, tasks=before)
            if new == old:  # maybe changed by a writer that was killed before it could sync
                self.make_durable(old)
                return Changed(old)
            after = before.with_task(new)
            mail = [*self._freed_mail(new, before), *self._gifts(new, old.owner, after)]
            put = self._put(replace(new, updated=time.time()), mail)
            return Changed(put, tuple(task.id for task in after.freed_since(before)))

    def _freed_mail(self, changed: Task, before: Tasks) -> Iterator[Message]:
        team, after = Roster(self.paths).read(), before.with_task(changed)
        return news.unblocked_mail(changed, before, after, team=team, by=self.who)

    def _maker(self, task: Task) -> str:
        """Return the maker of a task, or the lead if the maker has no inbox."""
        member = Roster(self.paths).read().find(task.created_by)
        return LEAD if member is None else member.name

    def _next(self, tasks: Tasks, role: str) -> Task | None:
        there = tasks.by_id.values()
        if any(task.is_of(self.who) and task.status.in_hand for task in there):
            return None
        free = (t for t in there if rules.free_for(t, name=self.who, role=role, tasks=tasks))
        return next(free, None)

    def _gifts(self, task: Task, former: str, tasks: Tasks) -> Iterable[Message]:
        """Return mail to an owner that was assigned the task by another member."""
        if not task.owner or task.is_of(former) or task.is_of(self.who):
            return []
        return [news.assignment_mail(task, tasks, by=self.who)]

    @contextmanager
    def _writing(self) -> Iterator[tuple[Tasks, int]]:
        """Hold the lock; the tasks do not change until the end of the block."""
        directories.make_safe_directory(self.paths.tasks)
        lock = self.paths.tasks_lock
        with (
            locks.locked(lock, timeout_seconds=self.patience_seconds) as fd,
            translate_os_errors(lock),
        ):
            tasks = self.read()
            for task in tasks.by_id.values():
                if task.untold:
                    self.make_durable(task)
                    tasks = tasks.with_task(self._tell(task))
            yield tasks, fd

    def _put(self, task: Task, mail: Iterable[Message]) -> Task:
        told = replace(task, untold=(*task.untold, *mail))
        self._write(told)
        return self._tell(told) if told.untold else told

    def _write(self, task: Task) -> None:
        files.replace(self.paths.task(task.id), task.encode(), durable=self.durable)

    def _tell(self, task: Task) -> Task:
        """Deliver the mail about a task, then remove it from the file.

        The change is already written: if mail cannot be delivered now, a later writer does it.
        """
        told = replace(task, untold=())
        with suppress(StoreError):
            for message in task.untold:
                with suppress(NotAMessage):  # above a limit that was lowered since
                    self.post.mailbox(message.to).put(message)
            self._write(told)
            return told
        return task
