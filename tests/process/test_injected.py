"""Every system call of send, take, done, roster write and spawn fails once, or is the last one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import pytest

from teamd.files.paths import TeamPaths
from tests.process.injected.injections import (
    FULL,
    SHORT,
    Ended,
    Injection,
    Tally,
    found_in,
    run,
    run_full,
    run_short,
)
from tests.process.injected.operations import Drain, Operation, Read, RosterWrite, Send
from tests.process.injected.spawn import Spawn

T = TypeVar("T")

OPERATIONS: Final[dict[str, Operation]] = {
    "send": Send(),
    "first send": Send(first=True),
    "read": Read(),
    "read again": Read(again=True),
    "roster write": RosterWrite(),
    "drain": Drain(),
    "spawn": Spawn(),
}
MOST_BYTES: Final = 700  # no file of these teams is longer
MOST_WRITES: Final = 12  # in none of the operations are there more
AT_ONCE: Final = 6
# How many of each kind, spread evenly, are enough in the suite: calls, writes, sizes of a file.
SOME: Final = {
    "send": (2, 1, 1),
    "read": (3, 1, 1),
    "roster write": (3, 1, 1),
    "drain": (2, 1, 1),
    "spawn": (1, 1, 1),  # of the most steps, each at the price of two supervisors
}
LEAST: Final = 300


class Probe:
    """Injects failures into operations, each into a new team."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self.tally = Tally()

    def fail_calls(self, operation: Operation, most: int | None = None) -> None:
        """Fail each system call, or end with it; at the most so many."""
        sample = self._new(operation)
        found = list(found_in(operation.argv(sample), sample.root, _log(sample)))
        if isinstance(operation, Read):
            operation.split(found)

        def fail(paths: TeamPaths, injection: Injection) -> Ended | None:
            return run(operation.argv(paths), injection, paths.root, _log(paths))

        self._each(operation, _spread(found, most), fail)

    def shorten_writes(self, operation: Operation, most: int | None = None) -> None:
        """Make each write a short one that can be gone on with."""

        def shorten(paths: TeamPaths, injection: Injection) -> Ended | None:
            ended = run_short(operation.argv(paths), injection.number, paths.home / "mark")
            assert ended is None or ended.status == 0, f"{injection}: {ended}"
            return ended

        numbers = range(1, (most or MOST_WRITES) + 1)
        found = [Injection(call="pwrite64", number=number, fault=SHORT) for number in numbers]
        self._each(operation, found, shorten)

    def fill_disk(self, operation: Operation, most: int | None = None) -> None:
        """Make each write a short one that cannot be gone on with, at each size of a file."""

        def fill(paths: TeamPaths, injection: Injection) -> Ended:
            return run_full(operation.argv(paths), injection.number)

        rooms = range(0, MOST_BYTES, 41)  # in the first of them nothing is written
        found = [Injection(call="pwrite64", number=room, fault=FULL) for room in rooms]
        self._each(operation, found[:most], fill)

    def _each(
        self,
        operation: Operation,
        found: Sequence[Injection],
        run: Callable[[TeamPaths, Injection], Ended | None],
    ) -> None:
        def inject(injection: Injection) -> None:
            paths = self._new(operation)
            ended = run(paths, injection)
            if ended is not None:
                operation.check(paths, ended, injection)
                self.tally.note(operation.name(injection), injection.fault)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(inject, found):
                pass  # the first that failed is raised here

    def _new(self, operation: Operation) -> TeamPaths:
        # An x behind it: no team's path is the beginning of another's.
        paths = TeamPaths(self._folder / f"{next(self._numbers)}x" / ".team")
        operation.prepare(paths)
        return paths


def _log(paths: TeamPaths) -> Path:
    return paths.home / "trace"


def _spread(found: Sequence[T], most: int | None) -> Sequence[T]:
    """So many of them at the most, each in the middle of its part: at the ends little is done."""
    if most is None:
        return found
    step = max(1, -(-len(found) // most))
    return found[step // 2 :: step]


@pytest.mark.slow
@pytest.mark.strace
@pytest.mark.parametrize("name", SOME)
def test_some_failures_of_system_calls_harm_nothing(tmp_path: Path, name: str) -> None:
    """A part of what the long one below does."""
    probe, (calls, writes, sizes) = Probe(tmp_path), SOME[name]
    probe.fail_calls(OPERATIONS[name], calls)
    probe.shorten_writes(OPERATIONS[name], writes)
    probe.fill_disk(OPERATIONS[name], sizes)
    print(probe.tally.table())  # noqa: T201
    assert probe.tally.total > sizes  # calls that failed, besides full disks


@pytest.mark.strace
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_failure_of_any_system_call_harms_anything(tmp_path: Path) -> None:
    """Acknowledged: there once. Not acknowledged: nothing half written, and a sentence that says
    why. In any case the roster can be read, and the next try succeeds.
    """  # noqa: D205 -- a claim of two sentences
    probe = Probe(tmp_path)
    for operation in OPERATIONS.values():
        probe.fail_calls(operation)
        probe.shorten_writes(operation)
        probe.fill_disk(operation)
        print(probe.tally.table(), flush=True)  # noqa: T201
    assert probe.tally.total >= LEAST
    assert {"send", "take", "transcript", "done", "roster write", "spawn"} <= probe.tally.operations
