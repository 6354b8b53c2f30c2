"""Random kills of all processes of a team: no message lost or doubled, no process left."""

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
# Places that take long to reach, or whose every step is covered by another kill test, are left to
# the long campaign.
SHORT: Final = dict.fromkeys(
    (Place.TAKE, Place.DELIVERED, Place.STREAM, Place.SENT, Place.ROSTER, Place.BOTH), 1
)
FEW: Final = Crew(names=("alice", "bob"), senders=1)  # most of the time goes into the team's work
# The claims of the long campaign.
LONG_KILLS: Final = 500
LONG_KILLS_EACH: Final = 50
LONG_PLACES: Final = (Place.TAKE, Place.DELIVERED, Place.STREAM, Place.TOOL, Place.ROSTER)
AIMED: Final = frozenset(Place) - {Place.ELSEWHERE}  # a kill at ELSEWHERE may hit any place


@pytest.mark.parametrize(
    ("plan", "seed"),
    [
        pytest.param(SHORT, "1", id="short", marks=pytest.mark.timeout(300)),
        pytest.param(LONG, "2", id="long", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_random_kills_neither_lose_nor_duplicate_a_message(
    project: Project, plan: dict[Place, int], seed: str
) -> None:
    """Every message reported as sent is in the receiver's conversation exactly once.

    The teardown of `project` checks that the server refused no request and no process is left.
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
