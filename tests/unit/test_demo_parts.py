"""`teamctl demo` notices each step that did not happen, and when a round is over."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from teamctl.demo.demo_progress import ProgressFollower, ProgressPrinter, Proof, TeamEvent
from teamctl.demo.play import Evidence, find_missing_step
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, Message
from teamd.process_id import Identity
from teamd.team.roster import Team
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import CallAnswered, Delivered, Record, Replied, TurnEnded
from tests.unit.life import enrol


@dataclass
class Racing(Proof):
    """A task whose teammate continues to work during the look at its conversation."""

    transcript: Transcript
    state: str | None
    then: str | None

    def rest(self) -> object | None:
        return self.state

    def news(self) -> Iterator[TeamEvent]:
        """Have the teammate claim the task and end its turn."""
        if self.state != self.then:
            self.state = self.then
            self.transcript.append(TurnEnded(outcome="end_turn", time=1.0))
        yield from ()


@pytest.mark.parametrize(
    ("before", "meanwhile", "over"),
    [
        ("to be done", "to be done", True),
        ("to be done", None, None),  # claimed again, and being checked
        ("to be done", "failed again", None),  # mail about the failure is on its way
        (None, "proven", None),
    ],
)
def test_a_round_is_over_if_nothing_changes_while_it_is_inspected(
    paths: TeamPaths, before: str | None, meanwhile: str | None, over: bool | None
) -> None:
    enrol(paths, carl=Status.WORKING)
    transcript = Transcript(paths.transcript("carl"), durable=False)
    transcript.append(TurnEnded(outcome="end_turn", time=1.0))
    proof = Racing(transcript, before, meanwhile)
    claim = pidfile.claim(paths)
    onlooker = ProgressFollower(paths, ["carl"], ProgressPrinter(), lambda: None, proof)
    assert onlooker.look() is over
    assert onlooker.look() is (None if proof.state is None else True)
    onlooker.close()
    os.close(claim)


FAILED: Final = "FAILED (failures=2)\n[exit status 1]"
PASSED: Final = "Ran 3 tests in 0.001s\n\nOK"


def call(tool: str, answer: str, *, is_error: bool = False, **given: Any) -> list[Record]:
    """Return the records of a call."""
    block = {"type": "tool_use", "id": f"{tool} {json.dumps(given)} {answer}", "name": tool}
    return [
        Replied(content=[{**block, "input": given}]),
        CallAnswered(tool_use_id=str(block["id"]), content=answer, is_error=is_error),
    ]


def letter(sender: str, to: str, content: str) -> Message:
    return Message(sender=sender, to=to, content=content)


def sends(to: str, content: str) -> list[Record]:
    return call("send_message", f"sent to {to}", to=to, content=content)


@dataclass
class Play:
    """The evidence of a complete demo, which tests change."""

    workspace: Path
    alice: list[list[Record]] = field(
        default_factory=lambda: [
            sends("bob", "It works."),
            [Delivered(messages=(letter("bob", "alice", "2 fail."),))],
            call("edit_file", "edited", path="roman.py"),
            sends("bob", "Fixed."),
        ]
    )
    bob: list[list[Record]] = field(
        default_factory=lambda: [
            [Delivered(messages=(letter("alice", "bob", "It works."),))],
            call("bash", FAILED, command="python3 -m unittest"),
            sends("alice", "2 fail."),
            [Delivered(messages=(letter("alice", "bob", "Fixed."),))],
            call("bash", PASSED, command="python3 -m unittest"),
            sends(LEAD, "All pass."),
        ]
    )
    mail: list[Message] = field(default_factory=lambda: [letter("bob", LEAD, "All pass.")])
    alive: tuple[int | None, ...] = (os.getpid(), os.getppid())
    status: Status = Status.IDLE

    def first_missing(self) -> str | None:
        """Return the step that the demo reports as missing."""
        told = {"alice": [*chain(*self.alice)], "bob": [*chain(*self.bob)]}
        team = Team()
        for name, pid in zip(told, self.alive, strict=True):
            process = Identity.of(pid) if pid else None
            team = team.with_new(
                name, role="x", status=Status.IDLE, pid=pid, started=process and process.started
            )
        team = team.with_member(replace(team.get("bob"), status=self.status))
        return find_missing_step(Evidence(self.workspace, told, self.mail, team))


@pytest.fixture
def play(tmp_path: Path) -> Play:
    for name in ("roman.py", "test_roman.py"):
        (tmp_path / name).touch()
    return Play(tmp_path)


def test_the_records_of_a_complete_demo_are_accepted(play: Play) -> None:
    assert play.first_missing() is None


def spoil(whose: str, place: int, *records: Record) -> Callable[[Play], None]:
    """Return a function that replaces a record of a conversation."""
    return lambda play: getattr(play, whose).__setitem__(place, list(records))


def other_words(sender: str, to: str) -> Record:
    return Delivered(messages=(letter(sender, to, "Words that nobody sent."),))


BROKEN: Final[tuple[tuple[str, Callable[[Play], None]], ...]] = (
    ("bob writes test_roman.py", lambda play: (play.workspace / "test_roman.py").unlink()),
    ("alice writes roman.py", lambda play: (play.workspace / "roman.py").unlink()),
    ("alice's mail reaches bob", lambda play: (spoil("bob", 0)(play), spoil("bob", 3)(play))[0]),
    ("alice's second mail reaches bob", spoil("bob", 3)),
    ("alice's second mail reaches bob", spoil("bob", 3, other_words("alice", "bob"))),
    ("alice's second mail reaches bob", spoil("alice", 3)),
    ("bob's tests find a bug", spoil("bob", 1, *call("bash", PASSED))),
    ("bob's tests find a bug", spoil("bob", 1, *call("bash", FAILED, is_error=True))),
    ("bob's mail reaches alice", spoil("alice", 1)),
    ("bob's mail reaches alice", spoil("alice", 1, other_words("bob", "alice"))),
    ("alice changes roman.py", spoil("alice", 2, *call("edit_file", "no such", is_error=True))),
    ("bob's tests pass", spoil("bob", 4, *call("bash", FAILED, command="again"))),
    ("bob's report reaches lead", lambda play: play.mail.clear()),
    ("two processes live", lambda play: setattr(play, "alive", (os.getpid(), None))),
    ("both end idle", lambda play: setattr(play, "status", Status.WORKING)),
)


@pytest.mark.parametrize(("step", "breaks"), BROKEN)
def test_a_missing_step_is_reported(play: Play, step: str, breaks: Callable[[Play], None]) -> None:
    breaks(play)
    assert play.first_missing() == step
