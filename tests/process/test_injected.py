"""Each system call of send, take, done, roster write and spawn fails once, or kills the process."""

from __future__ import annotations

from collections import Counter
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
MOST_WRITES: Final = 12  # no operation has more writes
AT_ONCE: Final = 6
# The numbers of samples, spread evenly, in the normal suite: calls, writes, file sizes.
SOME: Final = {
    "send": (2, 1, 1),
    "read": (3, 1, 1),
    "roster write": (3, 1, 1),
    "drain": (2, 1, 1),
    "spawn": (1, 1, 1),  # spawn has the most steps, and each sample costs two supervisors
}
LEAST: Final = 300


class Probe:
    """Injects failures into operations, each in a new team."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self.tally: Counter[tuple[str, str]] = Counter()  # by operation and fault

    def fail_calls(self, operation: Operation, most: int | None = None) -> None:
        """Fail each system call, or kill the process there; at most `most` calls."""
        sample = self._new(operation)
        found = list(found_in(operation.argv(sample), sample.root, _log(sample)))
        if isinstance(operation, Read):
            operation.split(found)

        def fail(paths: TeamPaths, injection: Injection) -> Ended | None:
            return run(operation.argv(paths), injection, paths.root, _log(paths))

        self._each(operation, _spread(found, most), fail)

    def shorten_writes(self, operation: Operation, most: int | None = None) -> None:
        """Make each write a short one that the program can continue."""

        def shorten(paths: TeamPaths, injection: Injection) -> Ended | None:
            ended = run_short(operation.argv(paths), injection.number, paths.home / "mark")
            assert ended is None or ended.status == 0, f"{injection}: {ended}"
            return ended

        numbers = range(1, (most or MOST_WRITES) + 1)
        found = [Injection(call="pwrite64", number=number, fault=SHORT) for number in numbers]
        self._each(operation, found, shorten)

    def fill_disk(self, operation: Operation, most: int | None = None) -> None:
        """Make each write a short one that fails when continued, at each size of a file."""

        def fill(paths: TeamPaths, injection: Injection) -> Ended:
            return run_full(operation.argv(paths), injection.number)

        rooms = range(0, MOST_BYTES, 41)  # with 0 bytes, nothing is written
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
                self.tally[operation.name(injection), injection.fault] += 1

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(inject, found):
                pass  # the first failure is raised here

    def _new(self, operation: Operation) -> TeamPaths:
        # The x ensures that no team's path is a prefix of another's.
        paths = TeamPaths(self._folder / f"{next(self._numbers)}x" / ".team")
        operation.prepare(paths)
        return paths


def _log(paths: TeamPaths) -> Path:
    return paths.home / "trace"


def _spread(found: Sequence[T], most: int | None) -> Sequence[T]:
    """Return at most `most` elements, each from the middle of its section, not its ends."""
    if most is None:
        return found
    step = max(1, -(-len(found) // most))
    return found[step // 2 :: step]


@pytest.mark.slow
@pytest.mark.strace
@pytest.mark.parametrize("name", SOME)
def test_sampled_failures_of_system_calls_do_not_lose_or_tear_data(
    tmp_path: Path, name: str
) -> None:
    """A sample of the long test below."""
    probe, (calls, writes, sizes) = Probe(tmp_path), SOME[name]
    probe.fail_calls(OPERATIONS[name], calls)
    probe.shorten_writes(OPERATIONS[name], writes)
    probe.fill_disk(OPERATIONS[name], sizes)
    print(probe.tally)  # noqa: T201
    assert probe.tally.total() > sizes  # failed calls, besides full disks


@pytest.mark.strace
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_failure_of_a_system_call_loses_or_tears_data(tmp_path: Path) -> None:
    """An acknowledged operation is done once; another leaves nothing half written and says why.

    In any case the roster is readable and the next attempt succeeds.
    """
    probe = Probe(tmp_path)
    for operation in OPERATIONS.values():
        probe.fail_calls(operation)
        probe.shorten_writes(operation)
        probe.fill_disk(operation)
        print(probe.tally, flush=True)  # noqa: T201
    assert probe.tally.total() >= LEAST
    assert {"send", "take", "transcript", "done", "roster write", "spawn"} <= {
        name for name, _ in probe.tally
    }
