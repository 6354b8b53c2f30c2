"""Three hosts with random network cuts and kills: no message is lost or duplicated."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.hosts.campaign.weather import Weather
from tests.hosts.campaign.world import CREWS, World
from tests.process.campaign.places import Place, histogram

SEED_VARIABLE: Final = "TEAMD_CAMPAIGN_SEED"
BROKER: Final = "broker"
POSTMAN: Final = "postman"
POWER: Final = "power"
# Postmen are killed at each step in test_postman_kills, and teammates and supervisors in
# test_campaign. This test is about the links between hosts.
SHORT: Final = {BROKER: 1, POSTMAN: 4, POWER: 1}
LONG: Final = {
    BROKER: 6,
    POSTMAN: 6,
    POWER: 8,
    Place.POST_INBOX: 5,
    Place.POST_CURSOR: 5,
    Place.TAKE: 2,
    Place.DELIVERED: 2,
    Place.STREAM: 2,
    Place.TOOL: 2,
    Place.SENT: 2,
    Place.ROSTER: 3,
    Place.SEND: 4,
    Place.DRAIN: 1,
    Place.ELSEWHERE: 3,
}
LONG_SECONDS: Final = 300.0
LONG_CUTS: Final = 15
LONG_KILLS: Final = 30
LONG_POWER_CUTS: Final = 8


@pytest.mark.slow
def test_kills_and_cuts_neither_lose_nor_duplicate_messages(tmp_path: Path) -> None:
    """The short campaign: one teammate on each host."""
    crews = {host: names[:1] for host, names in CREWS.items()}
    play(tmp_path, SHORT, seed="1", crews=crews, least_seconds=0.0, longest_weather=2.0)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_five_minutes_of_kills_and_cuts_neither_lose_nor_duplicate_messages(tmp_path: Path) -> None:
    world = play(
        tmp_path, LONG, seed="2", crews=CREWS, least_seconds=LONG_SECONDS, longest_weather=10.0
    )
    assert world.happened["cut"] >= LONG_CUTS
    assert world.happened["half_open"]
    assert world.happened["power cut"] >= LONG_POWER_CUTS
    assert world.killed.total() >= LONG_KILLS
    assert world.killed.keys() >= {"broker", "postman", "teammate", "supervisor"}
    assert all(world.hits[Place(what)] for what in LONG if what.startswith("postman at"))


def play(
    folder: Path,
    plan: Mapping[str, int],
    *,
    seed: str,
    crews: Mapping[str, Sequence[str]],
    least_seconds: float,
    longest_weather: float,
) -> World:
    """Execute a plan, continue until the time is over, then compare sent and delivered mail."""
    seed = os.environ.get(SEED_VARIABLE, seed)
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    chance = random.Random(seed)
    with World(folder, seed, crews) as world:
        world.begin()
        begun = time.monotonic()
        with Weather(world, random.Random(f"{seed} weather"), longest_weather):
            order = shuffled(plan, chance)
            for what in order:
                strike(world, what)
            while time.monotonic() - begun < least_seconds:
                strike(world, chance.choice(order))
        took = time.monotonic() - begun
        world.settle()
        report(world, took, time.monotonic() - begun - took)
        check(world)
    return world


def shuffled(plan: Mapping[str, int], chance: random.Random) -> list[str]:
    """Return all actions of a plan in random order."""
    order = [what for what, times in plan.items() for _ in range(times)]
    chance.shuffle(order)
    return order


def strike(world: World, what: str) -> None:
    """Kill a process, or cut the power of a host."""
    if what == BROKER:
        world.kill_broker()
    elif what == POSTMAN:
        world.kill_any_postman()
    elif what == POWER:
        world.cut_power()
    else:
        world.kill(Place(what))


def report(world: World, took: float, settled: float) -> None:
    acknowledged, delivered = world.acknowledged(), world.delivered()
    print(histogram(world.hits))  # noqa: T201
    print(  # noqa: T201
        f"{took:.0f} s, then {settled:.0f} s to rest: {dict(world.happened)}, "
        f"kills {dict(world.killed)}; {len(acknowledged)} messages acknowledged, "
        f"{world.crossed()} for another host, {len(acknowledged - set(delivered))} lost, "
        f"{sum(times > 1 for times in delivered.values())} doubled, "
        f"{len(world.out_of_order())} out of order"
    )


def check(world: World) -> None:
    """Check that each acknowledged message was delivered once, in its sender's order."""
    delivered = world.delivered()
    assert sorted(world.acknowledged() - set(delivered)) == []
    assert sorted(sent for sent, times in delivered.items() if times > 1) == []
    assert world.out_of_order() == []
    assert world.reports() == []
    for host in world.hosts.values():
        if host.power is None:  # a power cut tears lines that were not acknowledged
            assert host.campaign.ledger.torn() == b""
        assert host.campaign.unseen == []
