"""A demo round is over once all teammates are idle, and stay idle during the check."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from teamctl.demo.demo_progress import ProgressFollower, ProgressPrinter, Proof, TeamEvent
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.team.states import Status
from teamd.transcript.file import Transcript
from teamd.transcript.records import TurnEnded
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
def test_a_round_is_over_if_nothing_changed_during_the_look(
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
