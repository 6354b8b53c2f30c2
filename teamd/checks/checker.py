"""The process that checks one claim: it makes the place, runs the check, and judges."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from teamd.board.board import Board
from teamd.board.task import Attempt, Task
from teamd.checks.commands import KILLED, NOT_STARTED, CheckKilled, Tail, run_commands
from teamd.checks.places import CheckPlace, CheckShells, CommittedWork, NoPlace, SharedFolder, empty
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
    """Return the board in the hands of teamd, whose mail has room that others have not."""
    mail = settings.mail
    durable, room = mail.durability == "disk", RESERVE * mail.max_inbox_bytes
    longest = mail.max_message_bytes
    post = MailRouter(paths, durable=durable, max_bytes=longest, max_inbox_bytes=room)
    return Board(paths, post, TEAMD, durable=durable)


# After so many it is the check that kills itself: nobody else goes on for so long. Kills of this
# process are not among them, since nothing in the sandbox reaches it.
MOST_KILLS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Checks one claim after it was forked.

    Attributes:
        settings: those in force at that.
        probe: whether this machine can make a sandbox.
        mask: keeps secrets out of the output of checks.
    """

    paths: TeamPaths
    settings: Settings
    probe: Probe
    mask: Mask

    def run(self, task_id: str, claim: str) -> int:
        """Be the process that checks a claim; return the exit code."""
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
        """Put what was proven into the merge queue, where it waits until the task is completed.

        What is not fit for a repository has failed.
        """
        try:
            proof = enqueue.CheckedCommit(task, task.claim, attempt.commit)
            enqueue.join(Queue(board), self.settings, proof)
        except StoreError:
            raise
        except TeamError as error:
            why = f"it passed, but cannot join the merge queue: {error}"
            return replace(attempt, status=NOT_STARTED, why=why)
        return attempt

    def _remove_stale(self) -> None:
        """Remove what checks left that were killed and never begun again."""
        for name in ended_checks(self.paths):
            self._leave(name)
            empty(self.paths.check_place(name.rpartition(".")[2]))

    async def _attempt(self, task: Task, output: Tail) -> Attempt | None:
        """Run the checks of a task; `None` where there are none by now."""
        team_check = self.settings.tasks.check
        commands = list(dict.fromkeys(filter(None, (team_check, task.check))))
        if not commands:
            return None
        failed = partial(Attempt, time=time.time(), seconds=0.0, command=commands[-1])
        if task.kills >= MOST_KILLS:
            why = f"it was killed or could not be started, {MOST_KILLS} times in a row"
            return failed(status=KILLED, why=why)
        try:
            async with self._place(task).opened() as place:
                limit = self.settings.tasks.check_seconds
                made = await run_commands(place.shell, commands, seconds=limit, output=output)
                return replace(made, commit=place.commit)
        except NoPlace as error:
            return failed(status=NOT_STARTED, why=str(error))
        finally:
            self._leave(self.paths.checker_name(task.id))

    def _leave(self, name: str) -> None:
        """Remove the home of a check, and its group of processes, in which none is left."""
        remove_cgroups(self.paths, [name])
        empty(self.paths.homes / name)

    def _place(self, task: Task) -> CheckPlace:
        """Return where a task is checked: in a clone where its owner has a working copy."""
        settings, name = self.settings, self.paths.checker_name(task.id)
        members = (task.owner, task.created_by)
        shells = CheckShells.of(name, members, settings, self.paths, self.probe)
        owner = Roster(self.paths).read().find(task.owner) if task.owner else None
        if owner is None or not owner.worktree:
            return SharedFolder(settings.team.workspace, shells)
        return CommittedWork(
            paths=self.paths,
            name=owner.name,
            subject=task.subject,
            folder=self.paths.check_place(task.id),
            shells=shells,
            protect=settings.tasks.protect,
        )
