"""The task board: one file a task, changed by one writer at a time.

Who has to hear of a change is written down in the very file that the change is in (`untold`), put
into the inboxes, and then taken out again. A writer that is killed in between leaves it there, and
the next one puts it again, with the same ids, which a conversation takes once.
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
    """A task as it is now, and which others its change has freed."""

    task: Task
    freed: tuple[str, ...] = ()


@dataclass(eq=False)
class Board:
    """The tasks of one team, in the hands of one of its members.

    Attributes:
        paths: the team.
        post: the way to those who have to hear of a change.
        who: whose hands these are: what may be done depends on it.
        check: the command that has to pass for every task of the team.
        durable: whether a change is on disk itself when a call returns.
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
        """All tasks as they are, read without any lock."""
        return self._files.read()

    def read_one(self, task_id: str) -> Task | None:
        """One task as it is; `None` where there is none, or its file is damaged."""
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
        """Make a task.

        The same `key` twice makes one task, for a call that is repeated after a crash.

        Raises:
            TeamError: no subject, an unknown id or owner; nothing is made.
        """
        subject = rules.checked_subject(subject)
        owner = rules.resolved_owner(self.paths, owner)
        check = rules.checked_command(check)
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
        """Take a task in hand, or put it into the hands of `owner`.

        Raises:
            TeamError: it has another owner, is blocked, completed or deleted.
        """
        taker = self.who if owner is None else rules.resolved_owner(self.paths, owner)
        return self.apply(task_id, partial(rules.claimed, owner=taker))

    def update(self, task_id: str, change: Change) -> Changed:
        """Change a task as far as this member may.

        Raises:
            TeamError: it may not, an id or owner is unknown, tasks would wait in a circle.
        """
        if change.owner:
            change = replace(change, owner=rules.resolved_owner(self.paths, change.owner))
        rule = partial(rules.changed, change=change, who=self.who, check=self.check)
        return self.apply(task_id, rule)

    def find_claim(self, task_id: str, claim: str) -> Task | None:
        """The task of which that is claimed; `None` where it is no more."""
        task = self.read_one(task_id)
        return task if task is not None and rules.is_claimed(task, claim) else None

    def note_kill(self, task_id: str, claim: str) -> None:
        """Note that somebody has ended the check of a claim, maybe the check itself."""
        with self._writing() as (tasks, _):
            task = tasks.by_id.get(task_id)
            if task is not None and rules.is_claimed(task, claim):
                self._put(replace(task, kills=task.kills + 1), [])

    def judge(
        self, task_id: str, claim: str, attempt: Attempt | None, output: str, *, most: int
    ) -> Task | None:
        """Complete a task by a run of its check, or give it back; `None` for another claim.

        Whoever has to hear of it is told by the same write, so that a kill makes neither two of it
        nor none.

        Args:
            task_id: the task's.
            claim: what was checked.
            attempt: how that ended; `None` where no check is left by now.
            output: the end of what the check wrote.
            most: after how many failures the lead hears of it.
        """
        with self._writing() as (before, _):
            task = before.by_id.get(task_id)
            if task is None or not rules.is_claimed(task, claim):
                return None
            new = replace(rules.judged(task, attempt), updated=time.time())
            if new.status is TaskStatus.COMPLETED:
                return self._put(new, self._freed_mail(new, before))
            to = task.owner or self._maker(task)
            return self._put(new, news.failed(new, to, output, most))

    def take_next(self, role: str) -> Task | None:
        """Claim the first task that this member may begin by itself, and mail it to the member.

        One at a time: whoever has one in progress takes no other.
        """
        if self._next(self.read(), role) is None:
            return None
        with self._writing() as (tasks, _):  # look again: others look, too
            task = self._next(tasks, role)
            if task is None:
                return None
            taken = rules.claimed(task, owner=self.who, tasks=tasks)
            return self._put(replace(taken, updated=time.time()), [news.found(taken)])

    def release(self, gone: Callable[[str], str | None]) -> list[Task]:
        """Take open tasks from owners that have gone.

        Args:
            gone: why an owner is not there any more, or `None` for one that is.
        """

        def left(tasks: Tasks) -> list[tuple[Task, str]]:
            # What an owner said to be done before it went is checked all the same.
            held = (t for t in tasks.by_id.values() if t.status is not TaskStatus.CHECKING)
            owned = [t for t in held if t.status.open and t.owner]
            return [(task, why) for task in owned if (why := gone(task.owner)) is not None]

        if not left(self.read()):
            return []
        with self._writing() as (tasks, _):
            return [
                self._put(replace(rules.released(task, why), updated=time.time()), [])
                for task, why in left(tasks)
            ]

    def flush(self) -> bool:
        """Tell what writers that were killed had not told yet; returns whether that was done."""
        if not any(task.untold for task in self.read().by_id.values()):
            return False
        with self._writing() as (tasks, _):  # whoever writes tells first
            return not any(task.untold for task in tasks.by_id.values())

    def make_durable(self, task: Task) -> None:
        """Make a task that was found safe from a power cut, before anything is built on it."""
        if self.durable:
            files.make_durable(self.paths.task(task.id))

    def apply(self, task_id: str, rule: Callable[..., Task]) -> Changed:
        """Change a task by a rule, which gets it and all tasks."""
        with self._writing() as (before, _):
            old = before.get(task_id)
            new = rule(old, tasks=before)
            if new == old:  # by whom, is not known: maybe by one that was killed at it
                self.make_durable(old)
                return Changed(old)
            after = before.with_task(new)
            mail = [*self._freed_mail(new, before), *self._gifts(new, old.owner, after)]
            put = self._put(replace(new, updated=time.time()), mail)
            return Changed(put, tuple(task.id for task in after.freed_since(before)))

    def _freed_mail(self, changed: Task, before: Tasks) -> Iterator[Message]:
        team, after = Roster(self.paths).read(), before.with_task(changed)
        return news.freed(changed, before, after, team=team, by=self.who)

    def _maker(self, task: Task) -> str:
        """Return who made a task, or the lead where that is nobody with an inbox."""
        member = Roster(self.paths).read().find(task.created_by)
        return LEAD if member is None else member.name

    def _next(self, tasks: Tasks, role: str) -> Task | None:
        there = tasks.by_id.values()
        if any(task.is_of(self.who) and task.status.in_hand for task in there):
            return None
        free = (t for t in there if rules.free_for(t, name=self.who, role=role, tasks=tasks))
        return next(free, None)

    def _gifts(self, task: Task, former: str, tasks: Tasks) -> Iterable[Message]:
        """Mail to an owner that did not ask for it."""
        if not task.owner or task.is_of(former) or task.is_of(self.who):
            return []
        return [news.given(task, tasks, by=self.who)]

    @contextmanager
    def _writing(self) -> Iterator[tuple[Tasks, int]]:
        """Be the one writer: with the tasks as they stay until the end of the block."""
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
        """Put what is untold into the inboxes, then forget it.

        The change stands already: where mail cannot be written now, a later writer tells.
        """
        told = replace(task, untold=())
        with suppress(StoreError):
            for message in task.untold:
                with suppress(NotAMessage):  # over a limit that was lowered: never to be told
                    self.post.mailbox(message.to).put(message)
            self._write(told)
            return told
        return task
