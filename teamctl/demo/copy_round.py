"""The demo's round with a working copy: a failing check, a passing check, and a merge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from teamctl.demo.demo_progress import ProgressFollower, ProgressPrinter, TeamEvent
from teamd.board.board import Board
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.copies.merge import merge
from teamd.errors import ExitCode
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, MAX_MESSAGE_BYTES, TEAMD, Message
from teamd.sandbox.probe import find_program
from teamd.settings import Settings
from teamd.team.roster import Team
from teamd.team.states import Status
from teamd.transcript.records import CallAnswered, Record, Replied, mail_in

if TYPE_CHECKING:
    from teamctl.demo.stage import Stage, TaskInCopy


_PROGRAM: Final = "roman.py"
_TESTS: Final = "test_roman.py"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of the team's work: files, conversations, mail and the roster.

    Attributes:
        mail: the messages to the lead.
    """

    workspace: Path
    records: Mapping[str, list[Record]]
    mail: Iterable[Message]
    team: Team

    def letters(self, sender: str, receiver: str) -> int:
        """Return how many messages of a teammate reached the receiver unchanged."""
        sent = [given["content"] for given in self._calls(sender, "send_message").values()]
        got = list(self.mail) if receiver == LEAD else []
        for record in self.records.get(receiver, ()):
            got += mail_in(record)
        return sum(message.sender == sender and message.content in sent for message in got)

    def outputs(self, name: str, tool: str) -> list[str]:
        """Return the outputs of a teammate's successful calls of a tool."""
        calls = self._calls(name, tool)
        answers = (one for one in self.records.get(name, ()) if isinstance(one, CallAnswered))
        good = (one for one in answers if one.tool_use_id in calls and not one.is_error)
        return [one.content for one in good]

    def processes(self) -> set[int]:
        """Return the pids of the members that are alive."""
        found = (member.process for member in self.team.members)
        return {process.pid for process in found if process is not None and process.alive}

    def _calls(self, name: str, tool: str) -> dict[str, dict[str, Any]]:
        """Return the input of each call of a tool, by its id."""
        replies = (one for one in self.records.get(name, ()) if isinstance(one, Replied))
        calls = (call for reply in replies for call in reply.calls)
        return {call["id"]: call["input"] for call in calls if call["name"] == tool}


def find_missing_step(evidence: Evidence) -> str | None:
    """Return the first step that did not happen, if there is one."""
    return next((step for step, happened in _STEPS if not happened(evidence)), None)


_STEPS: Final[tuple[tuple[str, Callable[[Evidence], bool]], ...]] = (
    ("bob writes test_roman.py", lambda e: (e.workspace / _TESTS).is_file()),
    ("alice writes roman.py", lambda e: (e.workspace / _PROGRAM).is_file()),
    ("alice's mail reaches bob", lambda e: e.letters("alice", "bob") > 0),
    ("bob's tests find a bug", lambda e: any("FAILED (" in o for o in e.outputs("bob", "bash"))),
    ("bob's mail reaches alice", lambda e: e.letters("bob", "alice") > 0),
    ("alice changes roman.py", lambda e: bool(e.outputs("alice", "edit_file"))),
    ("alice's second mail reaches bob", lambda e: e.letters("alice", "bob") > 1),
    ("bob's tests pass", lambda e: e.outputs("bob", "bash")[-1].endswith("\nOK")),
    ("bob's report reaches lead", lambda e: e.letters("bob", LEAD) > 0),
    ("two processes live", lambda e: len(e.processes()) == len(("alice", "bob"))),
    ("both end idle", lambda e: {m.status for m in e.team.members} == {Status.IDLE}),
)


# Only in this repository: the demo does not use the person's name, hooks and keys.
_SETTINGS: Final = {
    "user.name": LEAD,
    "user.email": f"{LEAD}@demo",
    "commit.gpgSign": "false",
    "core.hooksPath": "/dev/null",
}


class _Proof:
    """Turns the runs of a task's check into events."""

    def __init__(self, board: Board, task_id: str, name: str) -> None:
        self._board, self._id, self._name = board, task_id, name
        self._told = 0

    @property
    def task(self) -> Task:
        """The present state of the task."""
        return self._board.read().get(self._id)

    def rest(self) -> Task | None:
        """Return the task; `None` while a check runs or its mail is under way."""
        task = self.task
        return None if task.status is TaskStatus.CHECKING or task.untold else task

    def news(self) -> Iterator[TeamEvent]:
        """Yield an event for each new run."""
        for attempt in self.task.attempts[self._told :]:
            self._told += 1
            yield TeamEvent(time.time(), TEAMD, self._describe(attempt), _colour(attempt))

    def _describe(self, attempt: Attempt) -> str:
        failed = attempt.why or f"failed with exit status {attempt.status}"
        came = "passed" if attempt.passed else failed
        return f"checks a clean clone of {self._name}'s commit: {came}"


@dataclass(slots=True)
class CopyRound:
    """The round with a working copy.

    Attributes:
        told: the task and its teammate.
        check: raises `Interrupted` if the demo was interrupted; called often.
        trouble: why a step did not happen, if known.
    """

    stage: Stage
    told: TaskInCopy
    teller: ProgressPrinter
    check: Callable[[], None]
    trouble: str = field(default="", init=False)

    def run(self) -> str:
        """Play the round; return the step that did not happen, or "".

        Raises:
            TeamError: git fails.
            Interrupted: the demo was interrupted.
        """
        self._commit()
        proof = self._add_task()
        if not self._spawn():
            return f"lead spawns {self.told.part.name}"
        name, paths = self.told.part.name, self.stage.paths
        onlooker = ProgressFollower(paths, [name], self.teller, self.check, proof)
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
        post = MailRouter(self.stage.paths, durable=False, max_bytes=MAX_MESSAGE_BYTES)
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
    """Return why this machine cannot play the round, or ""."""
    return "" if find_program("git") else "git is not installed"


def _colour(attempt: Attempt) -> str:
    return "green" if attempt.passed else "red"
