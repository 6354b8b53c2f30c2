"""The scenes of the demo, and the checks that each step happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from teamctl.demo.demo_progress import ProgressFollower, ProgressPrinter, Proof
from teamctl.demo.stage import Part, Stage, Story, failure
from teamctl.render import output, roster_table
from teamd.board.board import Board
from teamd.copies.merge import merge
from teamd.errors import ExitCode, TeamError
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, MAX_MESSAGE_BYTES, Message
from teamd.overview.overview import OverviewReader
from teamd.sandbox.probe import find_program
from teamd.settings import Settings
from teamd.team.roster import Roster, Team
from teamd.team.states import Status
from teamd.transcript.records import CallAnswered, Record, Replied, mail_in

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


@dataclass(slots=True)
class Play:
    """The scenes of the demo, on a stage.

    Attributes:
        check: raises `Interrupted` if the demo was interrupted; called often.
    """

    stage: Stage
    story: Story
    teller: ProgressPrinter
    check: Callable[[], None]

    def run(self) -> None:
        """Play all scenes, and check that each step happened.

        Raises:
            TeamError: a step did not happen.
            Interrupted: the demo was interrupted.
        """
        self.teller.lead(f"starts teamd in {self.stage.folder}")
        self.stage.start()
        self._work()
        lack = "" if find_program("git") else "git is not installed"
        if not lack:
            self._work_in_copy()
        click.echo("\n$ teamctl team")
        roster_table.show(OverviewReader(self.stage.paths).read())
        click.echo("\n$ teamctl inbox")
        for message in Mailbox(self.stage.paths, LEAD).peek():
            output.show_message(message)
        self._show_run("the program works", "MCMXCIV", _PROGRAM, "1994")
        self._show_run("its tests pass", "OK", "-m", "unittest")
        if lack:
            click.echo(f"\nA working copy with a check and a merge was left out: {lack}.")
        else:
            self._show_run("what was merged works", "1994", _PROGRAM, "MCMXCIV")

    def _work(self) -> None:
        for part in self.story.parts:
            self._spawn(part)
        names = [part.name for part in self.story.parts]
        onlooker = ProgressFollower(self.stage.paths, names, self.teller, self.check)
        onlooker.follow()
        team = Roster(self.stage.paths).read()
        mail = onlooker.mail.values()
        step = find_missing_step(Evidence(self.stage.workspace, onlooker.records, mail, team))
        if step is not None or onlooker.trouble:
            raise self._failure(step or "all come to rest", onlooker.trouble)

    def _work_in_copy(self) -> None:
        """Have a teammate do a task in a working copy: its check fails, then passes; merge it."""
        self._commit()
        paths, part, subject = self.stage.paths, self.story.task, self.story.task.subject
        post = MailRouter(paths, durable=False, max_bytes=MAX_MESSAGE_BYTES)
        board = Board(paths, post, LEAD, durable=False)
        task = board.add(subject, check=part.check)
        self.teller.lead(f"adds task {task.id}, “{task.subject}”, with a check")
        self._spawn(part, worktree=True)
        proof = Proof(board, task.id, part.name)
        onlooker = ProgressFollower(paths, [part.name], self.teller, self.check, proof)
        onlooker.mail.update({message.id: message for message in Mailbox(paths, LEAD).peek()})
        onlooker.follow()
        if [attempt.passed for attempt in proof.task.attempts][:1] != [False]:
            raise self._failure(f"the first check of {part.name}'s work fails", onlooker.trouble)
        if not proof.task.proven:
            step = f"the check passes once {part.name} has mended it"
            raise self._failure(step, onlooker.trouble)
        done = merge(paths, part.name, Settings())
        self.teller.lead(f"merges team/{part.name} into {done.branch}: {done.commit[:8]}")
        if not done.merged or onlooker.trouble:
            step = "all come to rest" if done.merged else f"{part.name}'s work is merged"
            raise self._failure(step, onlooker.trouble)

    def _commit(self) -> None:
        self.stage.git("init", "--quiet", "--template=", "--initial-branch=main")
        for name, value in _SETTINGS.items():
            self.stage.git("config", name, value)
        self.stage.git("add", "*.py")
        self.stage.git("commit", "--quiet", "-m", "Roman numerals, tested")
        self.teller.lead("commits roman.py and its tests to main")

    def _spawn(self, part: Part, **more: object) -> None:
        self.check()
        given = self.stage.spawn(part, **more)
        if given.exit_code != ExitCode.DONE:
            raise self._failure(f"lead spawns {part.name}", given.text)
        member = given.data["member"]
        self.teller.colours[part.name] = member["color"]
        where = ", in a working copy" if more else ""
        self.teller.lead(f"spawns {part.name}, {part.role}{where} (pid {member['pid']})")

    def _show_run(self, step: str, wanted: str, *arguments: str) -> None:
        """Run Python, show the last line of its output, and check that it is the wanted one."""
        self.check()
        ended = self.stage.run(*arguments)
        said = (ended.stdout + ended.stderr).decode("utf-8", "replace").strip()
        last = output.plain(said.rpartition("\n")[2])
        click.echo(f"\n$ python3 {' '.join(arguments)}\n{last}")
        if ended.status or last != wanted:
            raise self._failure(step, f"exit status {ended.status}, last line {last!r}")

    def _failure(self, step: str, why: str) -> TeamError:
        return failure(self.stage.folder, step, why, kept=self.stage.kept)
