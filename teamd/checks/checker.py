"""The process that checks one claim: it prepares the folder, runs the check, and records it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from teamd.board.board import Board
from teamd.board.task import Attempt, Task
from teamd.checks.commands import KILLED, NOT_STARTED, CheckKilled, Tail, run_commands
from teamd.checks.places import CheckShells, NoPlace, OpenPlace, empty, open_committed_work
from teamd.errors import StoreError, TeamError
from teamd.files.locks import InstanceLock
from teamd.files.paths import TeamPaths
from teamd.mail.routing import RESERVE, MailRouter
from teamd.masking import Mask
from teamd.merges import enqueue
from teamd.merges.queue import Queue
from teamd.messages import TEAMD
from teamd.sandbox.build import ended_checks, remove_cgroups
from teamd.sandbox.probe import Probe
from teamd.settings import Settings
from teamd.team.roster import Roster
from teamd.team.states import ChildExit


def own_board(paths: TeamPaths, settings: Settings) -> Board:
    """Return the board as used by teamd, whose mail may exceed the size limit of inboxes."""
    mail = settings.mail
    durable, room = mail.durability == "disk", RESERVE * mail.max_inbox_bytes
    longest = mail.max_message_bytes
    post = MailRouter(paths, durable=durable, max_bytes=longest, max_inbox_bytes=room)
    return Board(paths, post, TEAMD, durable=durable)


# After so many kills in a row the check must be killing itself. Kills of this process do not count,
# since the check cannot cause them from its sandbox.
MOST_KILLS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Checks one claim, in a process of its own.

    Attributes:
        settings: those in force at the fork.
        probe: whether this machine can make a sandbox.
        mask: keeps secrets out of the output of checks.
    """

    paths: TeamPaths
    settings: Settings
    probe: Probe
    mask: Mask

    def run(self, task_id: str, claim: str) -> int:
        """Check a claim, as the main function of a process; return the exit code."""
        try:
            lock = InstanceLock(self.paths.check_lock(task_id))  # never two at a time
            lock.check()
            with closing(asyncio.new_event_loop()) as loop:
                asyncio.set_event_loop(loop)
                loop.run_until_complete(self._check(task_id, claim))
        except CheckKilled:
            return ChildExit.CRASHED
        except StoreError:
            return ChildExit.IO
        return ChildExit.STOPPED

    async def _check(self, task_id: str, claim: str) -> None:
        board = own_board(self.paths, self.settings)
        task = board.find_claim(task_id, claim)
        if task is None:
            return
        self._remove_stale()
        output = Tail(self.mask)
        try:
            attempt = await self._attempt(task, output)
        except CheckKilled:
            board.note_kill(task_id, claim)
            raise
        most = self.settings.tasks.check_attempts
        if self.settings.merge.auto and attempt is not None and attempt.passed:
            attempt = self._join_queue(board, task, attempt)
        board.judge(task_id, claim, attempt, output.text(), most=most)

    def _join_queue(self, board: Board, task: Task, attempt: Attempt) -> Attempt:
        """Put the checked commit into the merge queue, where it waits until the task is completed.

        A commit that the queue refuses has failed the check.
        """
        try:
            enqueue.join(Queue(board), self.settings, task, attempt.commit)
        except StoreError:
            raise
        except TeamError as error:
            why = f"it passed, but cannot join the merge queue: {error}"
            return replace(attempt, status=NOT_STARTED, why=why)
        return attempt

    def _remove_stale(self) -> None:
        """Remove the leftovers of checks that were killed and not repeated."""
        for name in ended_checks(self.paths):
            self._leave(name)
            empty(self.paths.check_place(name.rpartition(".")[2]))

    async def _attempt(self, task: Task, output: Tail) -> Attempt | None:
        """Run the checks of a task; `None` if it no longer has any."""
        team_check = self.settings.tasks.check
        commands = list(dict.fromkeys(filter(None, (team_check, task.check))))
        if not commands:
            return None
        failed = partial(Attempt, time=time.time(), seconds=0.0, command=commands[-1])
        if task.kills >= MOST_KILLS:
            why = f"it was killed or could not be started, {MOST_KILLS} times in a row"
            return failed(status=KILLED, why=why)
        try:
            async with self._open_place(task) as place:
                limit = self.settings.tasks.check_seconds
                made = await run_commands(place.shell, commands, seconds=limit, output=output)
                return replace(made, commit=place.commit)
        except NoPlace as error:
            return failed(status=NOT_STARTED, why=str(error))
        finally:
            self._leave(self.paths.checker_name(task.id))

    def _leave(self, name: str) -> None:
        """Remove the home of a check and its empty control group."""
        remove_cgroups(self.paths, [name])
        empty(self.paths.homes / name)

    def _open_place(self, task: Task) -> AbstractAsyncContextManager[OpenPlace]:
        """Return the place of a check: a clone if the owner has a working copy."""
        settings, name = self.settings, self.paths.checker_name(task.id)
        members = (task.owner, task.created_by)
        shells = CheckShells.of(name, members, settings, self.paths, self.probe)
        owner = Roster(self.paths).read().find(task.owner) if task.owner else None
        if owner is None or not owner.worktree:
            return nullcontext(OpenPlace(shells(settings.team.workspace)))
        return open_committed_work(
            self.paths,
            owner.name,
            task.subject,
            folder=self.paths.check_place(task.id),
            shells=shells,
            protect=settings.tasks.protect,
        )
