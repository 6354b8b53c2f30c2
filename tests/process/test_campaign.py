"""A team is killed at random, everywhere: nothing lost, nothing doubled, nothing left behind."""

from __future__ import annotations

import os
import time
from random import Random
from typing import Final

import pytest

from tests.e2e.harness import Project
from tests.process.campaign.campaign import Campaign, Crew
from tests.process.campaign.ledger import RosterReader
from tests.process.campaign.places import Place, histogram

pytestmark = pytest.mark.slow


SEED_VARIABLE: Final = "TEAMD_CAMPAIGN_SEED"
LONG: Final = {
    Place.TAKE: 80,
    Place.DELIVERED: 80,
    Place.STREAM: 75,
    Place.TOOL: 65,
    Place.SENT: 50,
    Place.ROSTER: 54,
    Place.CONTROL: 6,
    Place.SEND: 60,
    Place.DRAIN: 20,
    Place.START: 6,
    Place.BOTH: 10,
    Place.ELSEWHERE: 10,
}
# What is dear to come to, or has a kill at every one of its steps elsewhere, is for the long one.
SHORT: Final = dict.fromkeys(
    (Place.TAKE, Place.DELIVERED, Place.STREAM, Place.SENT, Place.ROSTER, Place.BOTH), 1
)
FEW: Final = Crew(names=("alice", "bob"), senders=1)  # most of what it costs is the team's work
# What the long one must come to, in figures that are the claim.
LONG_KILLS: Final = 500
LONG_KILLS_EACH: Final = 50
LONG_PLACES: Final = (Place.TAKE, Place.DELIVERED, Place.STREAM, Place.TOOL, Place.ROSTER)
AIMED: Final = frozenset(Place) - {Place.ELSEWHERE}  # what is aimed at nothing hits anything


@pytest.mark.parametrize(
    ("plan", "seed"),
    [
        pytest.param(SHORT, "1", id="short", marks=pytest.mark.timeout(300)),
        pytest.param(LONG, "2", id="long", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_kills_anywhere_lose_nothing_and_double_nothing(
    project: Project, plan: dict[Place, int], seed: str
) -> None:
    """Whoever was told that a message is sent finds it in the receiver's conversation, once.

    The server refuses nothing and no process is left: the end of `project` looks at both.
    """
    seed = os.environ.get(SEED_VARIABLE, seed)
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    order = [place for place, times in plan.items() for _ in range(times)]
    Random(seed).shuffle(order)
    campaign = Campaign(project, seed, FEW if plan is SHORT else Crew())
    campaign.begin()
    begun = time.monotonic()
    with RosterReader(project.paths.config) as reader:
        for place in order:
            campaign.kill(place)
        took = time.monotonic() - begun
        campaign.settle()
    ledger = campaign.ledger
    print(histogram(campaign.hits))  # noqa: T201
    print(  # noqa: T201
        f"{campaign.hits.total()} kills in {took:.0f} s: {dict(campaign.killed)}; "
        f"{len(ledger.acknowledged())} messages acknowledged, {len(ledger.lost())} lost, "
        f"{len(ledger.doubled())} doubled; {len(project.server.requests)} requests, "
        f"{len(project.server.refused)} refused; roster read {reader.reads} times"
    )
    assert ledger.lost() == []
    assert ledger.doubled() == []
    assert reader.torn == []
    assert ledger.torn() == b""
    assert campaign.unseen == []
    assert all(campaign.hits[place] >= times for place, times in plan.items() if place in AIMED)
    if plan is LONG:
        assert campaign.hits.total() >= LONG_KILLS
        assert all(campaign.hits[place] >= LONG_KILLS_EACH for place in LONG_PLACES)
