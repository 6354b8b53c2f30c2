"""The merge queue compared with `git merge` by hand. `python -m tests.bench.merges`.

Both merge the same commits of several clones into a branch, one after the other, and run the same
check on the files of each merge. By hand means in one clone, without a sandbox and without records.

`--scene` has 8 teammates make 25 changes each, of which a third conflict, and a tenth are one of a
pair that fails the check together; a conflict or a failure is repaired and tried once more. By
hand, the same commits are merged in the same order. It takes ten minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.bench.ruler import Samples, interleave, machine, median, options, ratio, table
from tests.e2e.harness import opened
from tests.queues import PAIRS_CHECK, Worker, Yard, changes, go_on
from tests.repositories import git
from tests.waiting import wait_until

_BRANCH: Final = "team/main"
_FACTOR: Final = 1.5  # the wanted time, at most, as a multiple of that by hand
_MOST_SECONDS: Final = 600
_CHECKS: Final = {
    "a check of a second": "python3 -c 'sum(range(30_000_000))'",
    "a check of nothing": "test -e w0.txt -o -e w1.txt",
}
_SCENE_TEAMMATES: Final = 8
_SCENE_CHANGES: Final = 25  # of each teammate


@dataclass(frozen=True, slots=True)
class Work:
    """Commits to be merged.

    Attributes:
        teammates: the number of clones with commits.
        check: the command.
    """

    teammates: int
    check: str

    def by_queue(self) -> float:
        """Merge by queue; return the seconds from the ready supervisor to the last merge."""
        with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as project:
            settings = f'[merge]\ncheck = """{self.check}"""\n'
            yard = Yard(project, *self._names(), settings=settings)
            self._commit(yard)
            entries = [yard.add(name) for name in self._names()]
            project.start()
            begun = time.perf_counter()
            wait_until(
                lambda: {yard.stored()[entry]["state"] for entry in entries} == {"merged"},
                timeout_seconds=_MOST_SECONDS,
                what="all are merged",
            )
            took = time.perf_counter() - begun
            assert len(yard.merges()) == self.teammates
            return took

    def by_hand(self) -> float:
        """Merge as a person does; return the seconds from the first fetch to the last check."""
        with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as project:
            yard = Yard(project, *self._names())
            self._commit(yard)
            git(yard.folder, "branch", _BRANCH)
            clone = Path(folder) / "by_hand"
            git(yard.folder, "clone", "--quiet", "--branch", _BRANCH, ".", str(clone))
            begun = time.perf_counter()
            for name in self._names():
                git(clone, "fetch", "--quiet", str(yard.copy(name)), f"team/{name}")
                git(clone, "merge", "--quiet", "--no-ff", "-m", name, "FETCH_HEAD")
                subprocess.run(["bash", "-c", self.check], cwd=clone, check=True)
                git(clone, "push", "--quiet", "origin", _BRANCH)
            return time.perf_counter() - begun

    def _names(self) -> list[str]:
        return [f"w{at}" for at in range(self.teammates)]

    def _commit(self, yard: Yard) -> None:
        for name in self._names():
            yard.commit(name, **{name: "work\n"})


def scene() -> list[str]:
    """Merge many changes by queue and then by hand; return a row of figures."""
    check = f"{_CHECKS['a check of a second']}; {PAIRS_CHECK}"
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as project:
        names = [f"w{at}" for at in range(_SCENE_TEAMMATES)]
        yard = Yard(project, *names, settings=f"[merge]\ncheck = '''{check}'''\n")
        git(yard.folder, "branch", "begin")
        planned = changes(Random(12), len(names), _SCENE_CHANGES)
        crew = [Worker(yard, name, _BRANCH, own) for name, own in zip(names, planned, strict=True)]
        project.start()
        begun = time.perf_counter()
        wait_until(
            lambda: go_on(crew),
            timeout_seconds=_MOST_SECONDS * 2,
            what="all changes have landed",
        )
        queue = time.perf_counter() - begun
        project.do("teamd", "stop")
        tried = sorted(yard.stored().values(), key=lambda entry: entry["when"])
        hand = _again_by_hand(yard, Path(folder) / "by_hand", tried, check)
    what = f"{len(tried)} entries of {len(names)} teammates, a check of a second"
    return [what, f"{hand:.1f}", f"{queue:.1f}", f"{queue / hand:.2f}", f"{_FACTOR:g}"]


def _again_by_hand(yard: Yard, clone: Path, tried: list[dict[str, Any]], check: str) -> float:
    """Merge the same commits in the same order, with the same results; return the seconds."""
    git(yard.folder, "branch", "by_hand", "begin")
    git(yard.folder, "clone", "--quiet", "--branch", "by_hand", ".", str(clone))
    ends = []
    begun = time.perf_counter()
    for entry in tried:
        git(clone, "fetch", "--quiet", str(yard.copy(entry["teammate"])), entry["commit"])
        git(clone, "merge", "--quiet", "--no-ff", "-m", "work", "FETCH_HEAD", check=False)
        if git(clone, "ls-files", "--unmerged"):
            git(clone, "merge", "--abort")
            ends.append("conflict")
        elif subprocess.run(
            ["bash", "-c", check], cwd=clone, capture_output=True, check=False
        ).returncode:
            git(clone, "reset", "--quiet", "--hard", "ORIG_HEAD")
            ends.append("failed")
        else:
            git(clone, "push", "--quiet", "origin", "by_hand")
            ends.append("merged")
    took = time.perf_counter() - begun
    assert ends == [entry["state"] for entry in tried]
    return took


def main() -> int:
    """Print a row for each check."""
    given = options(__doc__, rounds=5, teammates=8, scene=False)
    rounds, teammates = (1, 2) if given.short else (given.rounds, given.teammates)
    os.environ.setdefault("GIT_CONFIG_NOSYSTEM", "1")
    rows = [["merging", "by hand s", "queue s", "factor", "at most"]]
    if given.scene:
        print(table(f"Merges on {machine()}", [*rows, scene()]))
        return 0
    for name, check in _CHECKS.items():
        work = Work(teammates, check)
        cases: dict[str, Callable[[], float | None]] = {
            "hand": partial(work.by_hand),
            "queue": partial(work.by_queue),
        }
        samples: Samples = interleave(cases, rounds)
        hand, queue = (f"{median(samples[case]):.2f}" for case in ("hand", "queue"))
        limit = f"{_FACTOR:g}" if "second" in name else ""
        row = [f"{teammates} commits, {name}", hand, queue]
        rows.append([*row, f"{ratio(samples, 'queue', 'hand'):.2f}", limit])
    print(table(f"Merges on {machine()}", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
