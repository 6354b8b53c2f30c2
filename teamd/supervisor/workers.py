"""The processes for single jobs beside the teammates: checks, merges, the postman, working copies.

The work is recorded in files, not here: after any kill a later look finds it again.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, Generic, TypeVar

from teamd import clocks
from teamd.board.board import Board
from teamd.board.files import id_in
from teamd.board.task import TaskStatus
from teamd.clocks import Deadline
from teamd.copies.clone import make_copy
from teamd.errors import ExitCode, StoreError, TeamError
from teamd.files.watch import SLOW_SECONDS
from teamd.merges import queue
from teamd.merges.queue import Entries, MergeState
from teamd.settings.schema import HostSettings
from teamd.supervisor.children import TROUBLE_SECONDS, Children
from teamd.supervisor.fork import CheckStart
from teamd.supervisor.worker import LEAVE_SECONDS, Worker
from teamd.team.states import ChildExit

_LONGEST_MERGE_PAUSE_SECONDS: Final = 5.0  # no hint comes when a person cleans a working tree
# A process that takes this much longer than its check may take is killed.
_AROUND_CHECK_SECONDS: Final = 300.0
_AROUND_MERGE_SECONDS: Final = 900.0
_LASTING_SECONDS: Final = 60.0  # a postman that ran for so long is not in a crash loop
_STOPPED: Final = "teamd was stopped; start it, and spawn it again"


W = TypeVar("W", bound=Worker)


class Pool(ABC, Generic[W]):
    """The workers for one kind of work."""

    def __init__(self, children: Children) -> None:
        self.children = children
        self.closing = False
        self._workers: list[W] = []

    def note(self, names: Collection[str] | None) -> None:
        """Record which files of the board's folder have changed; `None` if any may have."""

    @abstractmethod
    def look(self) -> float:
        """Start workers for the work there is, and end those whose work is no longer wanted.

        Returns:
            The seconds until the next look, unless there is news before.
        """

    @abstractmethod
    def _end(self, worker: W, code: int) -> None:
        """Handle the end of a worker's process."""

    def reap(self) -> list[int]:
        """Handle the ends of processes and return their exit codes."""
        ends = [(one, code) for one in self._workers if (code := one.reap()) is not None]
        for worker, code in ends:
            self._end(worker, code)
        return [code for _, code in ends]

    def kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()

    def close(self) -> None:
        """Kill all processes and start no others."""
        self.closing = True
        self.kill_all()

    def pids(self) -> set[int]:
        return {worker.pid for worker in self._workers if worker.pid is not None}


@dataclass(slots=True, eq=False, kw_only=True)
class CheckWorker(Worker):
    """The worker that checks one claim."""

    claim: CheckStart


class Checkers(Pool[CheckWorker]):
    """Checks tasks: a worker for each claim, until the claim is judged or withdrawn.

    One process runs at a time, since checks share the workspace.
    """

    def __init__(self, board: Board, children: Children) -> None:
        super().__init__(children)
        self._board = board
        self._claims: dict[str, CheckStart] = {}  # by the ids of tasks
        self._next_look = Deadline.after(0.0)

    def note(self, names: Collection[str] | None) -> None:
        if names is None:
            self._next_look = Deadline.after(0.0)
            return
        for task_id in filter(None, map(id_in, names)):
            self._read_task(task_id)

    def look(self) -> float:
        if self._next_look.left <= 0:
            self._read_board()
        if not self._workers:
            return max(0.0, self._next_look.left)
        for worker in self._workers:
            if worker.claim not in self._claims.values():
                worker.kill_within(LEAVE_SECONDS)
            worker.kill_overdue()
        running = [worker for worker in self._workers if worker.runs]
        if not (running or self.closing):
            running = self._start_one()
        waiting = [] if running or self.closing else self._workers
        dues = [worker.next_due_seconds for worker in (*running, *waiting)]
        return max(0.0, min([self._next_look.left, *dues]))

    def _start_one(self) -> list[CheckWorker]:
        """Start the first check that may start, if any, and return its worker."""
        seconds = self.children.settings.now.tasks.check_seconds + _AROUND_CHECK_SECONDS
        for worker in self._workers:
            check = partial(self.children.program.check, worker.claim)
            if worker.may_start and worker.try_start(check, limit_seconds=seconds, load=True):
                return [worker]
        return []

    def _end(self, worker: CheckWorker, code: int) -> None:
        worker.rest(progressed=False, trouble=code == ChildExit.IO)
        self._read_task(worker.claim.task)

    def _read_board(self) -> None:
        try:
            found = self._board.read().by_id
        except StoreError as error:
            self.children.journal.error("claims not looked for", error)
            self._next_look = Deadline.after(TROUBLE_SECONDS)
            return
        checking = (task for task in found.values() if task.status is TaskStatus.CHECKING)
        self._claims = {task.id: CheckStart(task.id, task.claim) for task in checking}
        self._next_look = Deadline.after(SLOW_SECONDS)
        self._match_workers()

    def _read_task(self, task_id: str) -> None:
        try:
            task = self._board.read_one(task_id)
        except StoreError:  # `look` reads the whole board, and logs the error
            self._next_look = Deadline.after(0.0)
            return
        if task is not None and task.status is TaskStatus.CHECKING:
            self._claims[task_id] = CheckStart(task_id, task.claim)
        else:
            self._claims.pop(task_id, None)
        self._match_workers()

    def _match_workers(self) -> None:
        """Keep one worker for each claim, besides those that still run."""
        claims = self._claims.values()
        self._workers = [one for one in self._workers if one.runs or one.claim in claims]
        known = [worker.claim for worker in self._workers]
        self._workers += [
            CheckWorker("check", self.children, facts={"task": claim.task}, claim=claim)
            for claim in claims
            if claim not in known
        ]


class Mergers(Pool[Worker]):
    """Empties the merge queue: one worker, while entries wait."""

    def __init__(self, children: Children) -> None:
        super().__init__(children)
        self._paths = children.settings.paths
        self._worker = Worker("merging", children, _LONGEST_MERGE_PAUSE_SECONDS)
        self._workers = [self._worker]
        self._entries = Entries()
        self._at = ""  # the entry that is being checked
        self._behind = True  # a killed process may have left files, or mail that it had to send
        self._next_look = Deadline.after(0.0)

    def note(self, names: Collection[str] | None) -> None:
        if names is None or self._paths.queue.name in names:
            self._next_look = Deadline.after(0.0)
        elif names and self._entries.open:  # the task for which an entry waits may be completed
            self._worker.end_pause()

    def look(self) -> float:
        if self._next_look.left <= 0:
            self._read()
        wanted = not self.closing and (
            bool(self._entries.open) or (self._behind and self._entries.last > 0)
        )
        if not (wanted or self._worker.runs):
            return max(0.0, self._next_look.left)
        self._worker.kill_overdue()
        if wanted and self._worker.may_start:
            merge = self.children.program.merge
            self._worker.try_start(merge, limit_seconds=self._limit_seconds(), load=True)
        return max(0.0, min(self._next_look.left, self._worker.next_due_seconds))

    def _end(self, worker: Worker, code: int) -> None:
        self._at = ""
        self._behind = code != ChildExit.STOPPED
        before = self._entries
        self._read()
        worker.rest(progressed=before.all != self._entries.all, trouble=code == ChildExit.IO)

    def _read(self) -> None:
        try:
            self._entries = queue.read(self._paths)
        except StoreError as error:
            self.children.journal.error("queue not read", error)
            self._next_look = Deadline.after(TROUBLE_SECONDS)
            return
        self._next_look = Deadline.after(SLOW_SECONDS)
        checking = (one.id for one in self._entries.open if one.state is MergeState.CHECKING)
        at = next(checking, "")
        if self._worker.runs and self._at and self._entries.find(self._at) is None:
            self._worker.kill_after(0.0)  # the entry was removed
        elif at and at != self._at:
            self._worker.kill_after(self._limit_seconds())
        self._at = at

    def _limit_seconds(self) -> float:
        return self.children.settings.now.tasks.check_seconds + _AROUND_MERGE_SECONDS


class Postmen(Pool[Worker]):
    """Talks to other hosts: one worker, while `[hosts]` names this host."""

    def __init__(self, children: Children) -> None:
        super().__init__(children)
        self._worker = Worker("postman", children)
        self._workers = [self._worker]
        self._running: HostSettings | None = None  # the settings of the process
        self._began = 0.0

    def look(self) -> float:
        settings, worker = self.children.settings.now.hosts, self._worker
        if worker.runs:
            if settings != self._running:
                worker.kill()
            return math.inf
        if self.closing or settings.name is None:
            return math.inf
        if worker.may_start and worker.try_start(self.children.program.post):
            self._running, self._began = settings, clocks.awake()
            return math.inf
        return max(0.0, worker.next_due_seconds)

    def _end(self, worker: Worker, code: int) -> None:
        changed = self.children.settings.now.hosts != self._running
        worker.rest(
            progressed=changed or clocks.awake() - self._began > _LASTING_SECONDS,
            trouble=code in (ChildExit.IO, ChildExit.SETTINGS),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOutcome:
    """The outcome of making a working copy.

    Attributes:
        error: why there is no copy; empty if there is one.
        killed: whether a part of the copy may exist.
        lacks: a sentence about files that are not in the copy.
    """

    error: str = ""
    killed: bool = False
    lacks: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class CopyWorker(Worker):
    """The worker that makes one working copy.

    Attributes:
        make: makes it, and returns a sentence about files that are not in it.
        then: called with the outcome.
        outcome: set once its process has ended, or could not be forked.
        report: a file without a name, to which the process writes the outcome.
    """

    name: str
    make: Callable[[], str]
    then: Callable[[CopyOutcome], None]
    outcome: CopyOutcome | None = None
    report: IO[bytes] = field(default_factory=BytesIO)


class CopyMakers(Pool[CopyWorker]):
    """Makes working copies, each in a worker, since a large one takes seconds.

    A worker that is killed leaves a part of a copy, which the next one removes.
    """

    def check(self, name: str) -> None:
        """Check that no copy is being made for a teammate.

        Raises:
            TeamError: one is.
        """
        if name.lower() in (worker.name.lower() for worker in self._workers):
            raise TeamError(f"a working copy for {name} is being made; try again in a moment")

    def make(self, name: str, team: str, folder: Path, then: Callable[[CopyOutcome], None]) -> None:
        """Have the next `look` start to make a copy of a folder, and a later one call `then`."""

        def make() -> str:
            return make_copy(self.children.settings.paths, name, team, folder).lacks

        facts = {"name": name}
        worker = CopyWorker(
            "working copy", self.children, facts=facts, name=name, make=make, then=then
        )
        self._workers.append(worker)

    def look(self) -> float:
        for worker in self._workers:
            if worker.outcome is None and not worker.runs:
                self._start(worker)
        for worker in list(self._workers):
            if worker.outcome is not None:
                self._workers.remove(worker)
                worker.then(worker.outcome)
        return math.inf if all(worker.runs for worker in self._workers) else 0.0

    def _start(self, worker: CopyWorker) -> None:
        if self.closing:
            worker.outcome = CopyOutcome(error=_STOPPED)
            return
        try:
            worker.report = TemporaryFile()  # noqa: SIM115 -- `_end` closes it
        except OSError as error:
            why = f"no temporary file could be made: {error.strerror}"
            worker.outcome = CopyOutcome(error=why)
            return
        try:
            worker.start(partial(_make_copy, worker))
        except OSError as error:
            worker.report.close()
            why = f"no process could be forked: {error.strerror}"
            worker.outcome = CopyOutcome(error=why)
            return
        self.children.private.append(worker.report.fileno())  # only the worker itself keeps it

    def _end(self, worker: CopyWorker, code: int) -> None:
        self.children.private.remove(worker.report.fileno())
        outcome = _read_outcome(worker, code)
        if outcome.killed and self.closing:
            outcome = CopyOutcome(error=_STOPPED, killed=True)
        if outcome.error:
            self.children.journal.warn("working copy not made", name=worker.name, why=outcome.error)
        worker.outcome = outcome


def _make_copy(worker: CopyWorker) -> int:
    try:
        outcome = {"lacks": worker.make()}
    except TeamError as error:
        outcome = {"error": str(error)}
    with worker.report as report:
        report.write(json.dumps(outcome).encode())
    return ExitCode.DONE


def _read_outcome(worker: CopyWorker, code: int) -> CopyOutcome:
    with worker.report as report:
        report.seek(0)
        content = report.read()
    try:
        found: dict[str, Any] = json.loads(content)
        return CopyOutcome(**found)
    except (ValueError, TypeError):
        why = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return CopyOutcome(
            killed=True,
            error=f"no working copy was made: its process {why}; `teamctl logs teamd` may say why",
        )
