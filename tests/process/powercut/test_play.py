"""Power cuts and kills while a whole team works."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.e2e.harness import Project
from tests.process.powercut import play
from tests.process.powercut.disk import MODELS, Record, State
from tests.process.powercut.starts import TEAMS, Cut, Facts, Starts, Tally, court, cuts, judge_all

_STATES: Final = 20_000
_STARTS: Final = 100
_SECOND_CUTS: Final = 5  # states for each recovery
_ROSTER: Final = f"{TEAMS['']}/config.json"


@pytest.mark.slow
def test_a_power_cut_during_a_short_play_does_not_lose_acknowledged_data(project: Project) -> None:
    done = play.short(project, Random(1))
    records, before = done.recording.records(), done.recording.before
    tally = _judge(records, before, Random(1), states=75)
    _say(tally)
    assert tally.states.total() >= 75
    tally = _start(records, before, Random(1), project.root, starts=1)
    _say(tally)
    assert tally.states["start"] == 1


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_power_cut_during_a_whole_play_does_not_lose_acknowledged_data(
    project: Project, seed: int
) -> None:
    done = play.whole(project, Random(seed))
    records, before = done.recording.records(), done.recording.before
    kills = sum(record[1] == "mark" and "killed" in record[2] for record in records)
    _say(f"seed {seed}: {len(records)} records, {kills} kills")
    tally = _judge(records, before, Random(seed), states=_STATES)
    _say(f"seed {seed}: {tally}")
    assert tally.states.total() >= _STATES
    tally = _start(records, before, Random(seed), project.root, starts=_STARTS)
    _say(f"seed {seed}: after real starts {tally}")
    assert tally.states["start"] >= _STARTS


def _say(line: object) -> None:
    print(line, flush=True)  # noqa: T201


def _judge(records: list[Record], before: State, chance: Random, *, states: int) -> Tally:
    """Judge about that many states, spread over the whole recording."""
    facts = Facts()
    share = min(1.0, 1.5 * states / (len(records) * 7))
    tally = judge_all(cuts(records, before, facts, chance=chance, mixed=1, share=share), facts)
    assert tally.complaints == [], tally
    return tally


def _start(
    records: list[Record], before: State, chance: Random, root: Path, *, starts: int
) -> Tally:
    """Start a team on that many states, spread over the recording; also cut each start."""
    facts, tally, last, wanted = Facts(), Tally(), -1, ""
    share = min(1.0, 1.6 * (starts + 5) / len(records))
    with Starts(root / "starts", root / "powercut.log") as starting, court() as judging:
        for cut in cuts(records, before, facts, chance=chance, mixed=1, share=share):
            if cut.number != last:
                last, wanted = cut.number, chance.choice([*MODELS, "mixed"])
            if cut.label != wanted or _ROSTER not in cut.state:
                continue
            told = facts.told[""]
            complaints, again = starting.recover(cut, told)
            tally.states["start"] += 1
            tally.complaints += [(cut, complaints)] if complaints else []
            second = Facts()
            second.told[""] = copy.deepcopy(told)  # the recovery adds to it
            more = min(1.0, _SECOND_CUTS / max(1, len(again)))
            for later in cuts(again, cut.state, second, chance=chance, mixed=1, share=more):
                tally.states[later.label] += 1
                if complaints := judging.complaints(later, second):
                    twice = Cut(cut.number, f"{cut.label}, then {later}", {})
                    tally.complaints.append((twice, complaints))
            if tally.states["start"] >= starts:
                break
    assert tally.complaints == [], tally
    return tally
