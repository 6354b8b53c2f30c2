"""One round of a working copy in the demo: a check that fails, one that passes, and a merge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from teamctl.demo.onlooker import Onlooker, TeamEvent, Teller
from teamd.board.board import Board
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.copies.merge import merge
from teamd.errors import ExitCode
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import Post
from teamd.messages import LEAD, MAX_MESSAGE_BYTES, TEAMD
from teamd.sandbox.probe import find_program
from teamd.settings import Settings

if TYPE_CHECKING:
    from teamctl.demo.stage import Stage, TaskInCopy

# Of the repository alone: neither the person's name nor its hooks and keys have a part in this.
_SETTINGS: Final = {
    "user.name": LEAD,
    "user.email": f"{LEAD}@demo",
    "commit.gpgSign": "false",
    "core.hooksPath": "/dev/null",
}


class _Proof:
    """The runs of a task's check, told as events."""

    def __init__(self, board: Board, task_id: str, name: str) -> None:
        self._board, self._id, self._name = board, task_id, name
        self._told = 0

    @property
    def task(self) -> Task:
        """The task as it is now."""
        return self._board.read().get(self._id)

    def rest(self) -> Task | None:
        """Return the task; `None` while a check runs, or mail about the last one is to come."""
        task = self.task
        return None if task.status is TaskStatus.CHECKING or task.untold else task

    def news(self) -> Iterator[TeamEvent]:
        """Yield an event for each run that was not told yet."""
        for attempt in self.task.attempts[self._told :]:
            self._told += 1
            yield TeamEvent(time.time(), TEAMD, self._describe(attempt), _colour(attempt))

    def _describe(self, attempt: Attempt) -> str:
        failed = attempt.why or f"failed with exit status {attempt.status}"
        came = "passed" if attempt.passed else failed
        return f"checks a clean clone of {self._name}'s commit: {came}"


@dataclass(slots=True)
class CopyRound:
    """The round.

    Attributes:
        told: the task, and who does it.
        check: called wherever the play may be broken off; raises if it is to be.
        trouble: why a step did not happen, if that is known.
    """

    stage: Stage
    told: TaskInCopy
    teller: Teller
    check: Callable[[], None]
    trouble: str = field(default="", init=False)

    def run(self) -> str:
        """Play it; return the step that did not happen, empty where all of them did.

        Raises:
            TeamError: git fails.
            Interrupted: it was broken off.
        """
        self._commit()
        proof = self._add_task()
        if not self._spawn():
            return f"lead spawns {self.told.part.name}"
        name, paths = self.told.part.name, self.stage.paths
        onlooker = Onlooker(paths, [name], self.teller, self.check, proof)
        onlooker.mail.update({message.id: message for message in Mailbox(paths, LEAD).peek()})
        onlooker.follow()
        self.trouble = onlooker.trouble
        statuses = [attempt.passed for attempt in proof.task.attempts]
        if statuses[:1] != [False]:
            return f"the first check of {name}'s work fails"
        if not proof.task.proven:
            return f"the check passes once {name} has mended it"
        done = merge(paths, name, Settings())
        self.teller.lead(f"merges team/{name} into {done.branch}: {done.commit[:8]}")
        return "" if done.merged else f"{name}'s work is merged"

    def _commit(self) -> None:
        self.stage.git("init", "--quiet", "--template=", "--initial-branch=main")
        for name, value in _SETTINGS.items():
            self.stage.git("config", name, value)
        self.stage.git("add", "*.py")
        self.stage.git("commit", "--quiet", "-m", "Roman numerals, tested")
        self.teller.lead("commits roman.py and its tests to main")

    def _add_task(self) -> _Proof:
        post = Post(self.stage.paths, durable=False, max_bytes=MAX_MESSAGE_BYTES)
        board = Board(self.stage.paths, post, LEAD, durable=False)
        task = board.add(self.told.subject, check=self.told.check)
        self.teller.lead(f"adds task {task.id}, “{task.subject}”, with a check")
        return _Proof(board, task.id, self.told.part.name)

    def _spawn(self) -> bool:
        part = self.told.part
        given = self.stage.spawn(part, worktree=True)
        if given.exit_code != ExitCode.DONE:
            self.trouble = given.text
            return False
        self.teller.colours[part.name] = given.data["member"]["color"]
        pid = given.data["member"]["pid"]
        self.teller.lead(f"spawns {part.name}, {part.role}, in a working copy (pid {pid})")
        return True


def find_lack() -> str:
    """Say what this machine lacks for working copies, besides what any command needs."""
    return "" if find_program("git") else "git is not installed"


def _colour(attempt: Attempt) -> str:
    return "green" if attempt.passed else "red"
