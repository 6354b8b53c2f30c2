"""The disks that a recording allows, each judged by what had been told before it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.process.powercut.disk import MODELS, Disk, Record, State, put_state
from tests.process.powercut.judge import Judge, Told

TEAMS: Final = {"": ".team", "web": ".teams/web", "deep": "deep/er/.team"}
_DECISIVE: Final = ("mark", "ftruncate", "rename", "unlink")
_SYNCS: Final = ("sync", "syncdir")
_SHOWN: Final = 5
_SHARED_MEMORY: Final = Path("/dev/shm")


class Facts:
    """What was told so far, by team."""

    def __init__(self) -> None:
        self.told: dict[str, Told] = defaultdict(Told)

    def hear(self, facts: dict[str, Any]) -> None:
        """Take a mark into account; the key `team` names another team than the first."""
        self.told[facts.get("team", "")].hear(facts)


@dataclass(frozen=True, slots=True)
class Cut:
    """The power going at one moment, by one model.

    Attributes:
        number: of the last record before it.
        label: of the model.
        state: what is left.
    """

    number: int
    label: str
    state: State

    def __str__(self) -> str:
        return f"record {self.number}, {self.label}"


@dataclass(slots=True)
class Tally:
    """What a series of cuts came to.

    Attributes:
        states: how many distinct ones were judged, by model.
        complaints: with the cut that they are about.
    """

    states: Counter[str] = field(default_factory=Counter)
    complaints: list[tuple[Cut, list[str]]] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{label} {count}" for label, count in self.states.items())
        bad = "".join(f"\n{cut}: {lines}" for cut, lines in self.complaints[:_SHOWN])
        return f"{self.states.total()} distinct states ({kinds}), {len(self.complaints)} bad{bad}"


def cuts(
    records: Iterable[Record],
    before: State,
    facts: Facts,
    *,
    chance: Random,
    mixed: int,
    share: float = 1.0,
    decisive: bool = False,
) -> Iterator[Cut]:
    """Yield every distinct state, by each of the models and so many mixtures, moment by moment.

    With a `share` below 1 only so many of the moments are looked at; with `decisive`, the
    decisive ones as well.

    `facts` knows at each of them what had been told by then; a state that comes again when more
    has been told is another one.
    """
    disk = Disk(before)
    seen: set[int] = set()
    heard = 0
    for number, record in enumerate(records):
        if record[1] == "mark":
            facts.hear(record[2])
            heard += 1
        elif not disk.apply(record):
            continue
        if chance.random() >= share and not (decisive and _is_decisive(record)):
            continue
        states = [(label, disk.after(label)) for label in MODELS]
        states += [("mixed", disk.after_by_chance(chance)) for _ in range(mixed)]
        for label, state in states:
            key = hash((heard, frozenset(state.items())))
            if key not in seen:
                seen.add(key)
                yield Cut(number, label, state)


def _is_decisive(record: Record) -> bool:
    """Whether somebody has just been told something, by mail or otherwise, or something is gone.

    What is not synced is lost at most other moments as well, and matters at these.
    """
    _, call, place, *_ = record
    return call in _DECISIVE or (call == "pwrite" and "inbox/" in place)


class Court:
    """Judges states in a folder of its own, in memory where the system has such a place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def complaints(self, cut: Cut, facts: Facts) -> list[str]:
        """Return what does not hold of a state."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        put_state(self._folder, cut.state)
        judges = {
            team: Judge(self._folder / TEAMS[team], told) for team, told in facts.told.items()
        }
        across = {sent for judge in judges.values() for sent in judge.sent_across}
        return [
            f"{team or 'the first team'}: {line}"
            for team, judge in judges.items()
            for line in judge.complaints(
                {(to, text) for where, to, text in across if where == team}
            )
        ]


@contextmanager
def court() -> Iterator[Court]:
    """Make a court, and clear its folder away."""
    place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Court(Path(folder) / "project")


def judge_all(found: Iterable[Cut], facts: Facts, *, most_complaints: int = 20) -> Tally:
    """Judge each cut as it comes; a series with that many bad ones is ended."""
    tally = Tally()
    with court() as judging:
        for cut in found:
            tally.states[cut.label] += 1
            if complaints := judging.complaints(cut, facts):
                tally.complaints.append((cut, complaints))
                if len(tally.complaints) >= most_complaints:
                    break
    return tally


def sites(records: Iterable[Record]) -> list[str]:
    """Return the lines of the program that asked for a sync."""
    syncs = (record for record in records if record[1] in _SYNCS)
    return sorted({site for record in syncs for site in record[4]})


def cuts_without(
    site: str,
    records: Iterable[Record],
    before: State,
    facts: Facts,
    *,
    decisive: bool,
) -> Iterator[Cut]:
    """Yield the states that are only possible where one line of the program syncs nothing.

    With `decisive`, only at decisive moments.
    """
    disk, other = Disk(before), Disk(before, site)
    seen: set[int] = set()
    heard = 0
    begun = False  # until that line is come to, both disks are the same
    for number, record in enumerate(records):
        if record[1] == "mark":
            facts.hear(record[2])
            heard += 1
        elif not disk.apply(record) | other.apply(record):
            continue
        begun = begun or (record[1] in _SYNCS and site in record[4])
        if not begun or (decisive and not _is_decisive(record)):
            continue
        for label in MODELS:
            state = other.after(label)
            key = hash((heard, frozenset(state.items())))
            if key not in seen and state != disk.after(label):
                seen.add(key)
                yield Cut(number, label, state)
