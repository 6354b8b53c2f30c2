"""The ends of teammates' processes: deadlines that several callers set, and answers that hang."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from teamd.approvals.approval import Verdict
from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.spool import BatchLimit
from teamd.messages import TEAMD, USER, Message
from teamd.process_id import Identity
from teamd.supervisor.fork import ChildProgram
from teamd.supervisor.handlers import carry_out
from teamd.supervisor.shutdowns import ShutdownOutcome
from teamd.supervisor.team_context import TeamContext
from teamd.team.states import ChildStart, Status
from tests.children import make_context
from tests.unit.life import enrol
from tests.waiting import wait_until

NAMES: Final = ("ann", "bob")
_NEVER_SECONDS: Final = 3600.0


def pipes_of(pid: int) -> set[str]:
    """Return the pipes that a process has open."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this very look
            found.add(os.readlink(fd))  # noqa: PTH115 -- no path
    return {target for target in found if target.startswith("pipe:")}


class World:
    """A team whose processes ignore SIGTERM, and the rounds of its supervisor."""

    def __init__(self, paths: TeamPaths, journal: Journal) -> None:
        self._paths = paths
        self.pipes = pipes_of(os.getpid())
        program = ChildProgram(
            run=self._run, load=lambda: None, warning=lambda: None, find_role=lambda _: None
        )
        self.context: TeamContext = make_context(paths, journal, program)
        self.children = self.context.children
        self.children.begin()

    def start(self, *names: str) -> None:
        for name in names:
            self.children.start(name)
        wait_until(lambda: all((self._paths.home / one).exists() for one in names), what="deaf")

    def round(self) -> None:
        self.children.reap()
        self.context.shutdowns.look()
        self.children.do_due()

    def restarted(self, name: str, former: Identity) -> bool:
        self.round()
        return self.children.process(name) not in (None, former)

    def ended(self) -> bool:
        self.round()
        return not self.children.active()

    def _run(self, start: ChildStart) -> int:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Mailbox(self._paths, start.name, durable=False).take(BatchLimit(wary=True))
        (self._paths.home / start.name).touch()
        os.set_blocking(start.bell, True)
        return len(os.read(start.bell, 1))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths, ann=Status.IDLE, bob=Status.IDLE)
    with closing(Journal(paths.log(TEAMD), TEAMD)) as journal:
        made = World(paths, journal)
        yield made
        for name in NAMES:
            made.children.stop(name, seconds=0)
        made.children.kill_all()
        wait_until(made.ended, what="all have ended")


@pytest.mark.parametrize("deadlines", [(_NEVER_SECONDS, 0.0), (0.0, _NEVER_SECONDS)])
def test_the_earlier_of_two_deadlines_for_stopping_a_teammate_applies(
    world: World, deadlines: tuple[float, float]
) -> None:
    world.start("ann")
    killed: list[bool] = []
    for seconds in deadlines:
        world.children.stop("ann", seconds=seconds, then=killed.append)
    wait_until(world.ended, what="it was killed")
    assert killed == [True, True]


@pytest.mark.parametrize("deadlines", [(_NEVER_SECONDS, 0.0), (0.0, _NEVER_SECONDS)])
def test_the_earlier_of_two_deadlines_for_an_answer_counts(
    world: World, deadlines: tuple[float, float]
) -> None:
    world.start("ann")
    shutdowns = world.context.shutdowns
    for seconds in deadlines:
        shutdowns.ask("ann", asker="lead", seconds=seconds, then=lambda _: None)
    assert shutdowns.next_due_seconds() == 0.0


def test_a_shutdown_of_several_is_refused_if_one_goes_on(world: World) -> None:
    """Although another one passed its deadline: that one has ended."""
    world.start(*NAMES)
    wanted: dict[str, Any] = {"names": list(NAMES), "seconds": 0}
    replies: list[ControlReply] = []
    request = ControlRequest.within(60.0, "shutdown", arguments=wanted, sender=USER)
    carry_out(world.context, request, replies.append)
    approvals = world.context.shutdowns.approvals
    (asked,) = (one for one in approvals.open_ones() if one.to == "ann")
    approvals.answer(asked.id, by="ann", approve=False)

    def answered() -> bool:
        world.round()
        return bool(replies)

    wait_until(answered, what="both have ended or answered")
    codes = [one["exit_code"] for one in replies[0].data["members"]]
    assert codes == [ExitCode.REFUSED, ExitCode.DEADLINE]
    assert replies[0].exit_code == ExitCode.REFUSED


@pytest.mark.parametrize("killed", [True, False])
def test_mail_in_hand_is_blamed_for_a_crash_but_not_for_a_kill(world: World, killed: bool) -> None:
    """Of a person, or of the kernel that is out of memory: the next reader gets the mail."""
    paths = world.context.settings.paths
    Mailbox(paths, "ann", durable=False).put(Message(sender="lead", to="ann", content="Go."))
    world.start("ann")
    first = world.children.process("ann")
    assert first is not None
    if killed:
        os.kill(first.pid, signal.SIGKILL)
    else:
        world.children.ring(["ann"])  # it ends with exit code 1, as after a mistake
    wait_until(lambda: world.restarted("ann", first), what="another process")
    blamed = "crashed with mail in hand" in paths.log(TEAMD).read_text(encoding="utf-8")
    assert blamed is not killed


def test_a_teammate_that_agrees_to_end_and_then_hangs_is_ended_at_the_deadline(
    world: World,
) -> None:
    """It reports its answer once it has saved everything; this one never does."""
    world.start("ann")
    outcomes: list[ShutdownOutcome] = []
    shutdowns = world.context.shutdowns
    shutdowns.ask("ann", asker="lead", seconds=0.5, then=outcomes.append)
    (asked,) = shutdowns.approvals.open_ones()
    shutdowns.approvals.answer(asked.id, by="ann", approve=True)
    wait_until(world.ended, what="it was ended")
    (outcome,) = outcomes
    assert (outcome.exit_code, outcome.verdict) == (ExitCode.DEADLINE, Verdict.APPROVED)
    assert outcome.text == "ann approved, but did not end in time and was killed"
    assert not shutdowns.pending("ann")


def test_a_report_is_accepted_only_from_the_running_process(world: World) -> None:
    """A late report of an earlier process may name the same pid, after a reboot for example."""
    world.start("ann")
    ann = world.children.process("ann")
    assert ann is not None
    assert world.children.believes("ann", ann.pid, ann.started)
    assert not world.children.believes("ann", ann.pid, ann.started - 1)
    assert not world.children.believes("ann", ann.pid + 1, ann.started)
    assert not world.children.believes("bob", ann.pid, ann.started)


def test_no_process_keeps_the_bell_of_another_process(world: World) -> None:
    """A teammate would not notice that teamd was killed while a sibling has that end open."""
    world.start("ann")
    ann = world.children.process("ann")
    assert ann is not None
    bell = pipes_of(ann.pid) - world.pipes
    assert len(bell) == 1
    assert bell < pipes_of(os.getpid())
    world.start("bob")
    bob = world.children.process("bob")
    assert bob is not None
    assert not bell & pipes_of(bob.pid)
