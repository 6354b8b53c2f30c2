"""The merge queue beside `git merge` by hand with the same check. `python -m tests.bench.merges`.

Both bring the same commits of several clones into a branch, one after the other, and check each
merge in the files as they are then. By hand means in one clone, without a sandbox, and nothing is
written down.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench.ruler import Samples, interleave, machine, median, options, ratio, table
from tests.e2e.harness import opened
from tests.queues import Yard
from tests.repositories import git
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

_BRANCH: Final = "team/main"
_FACTOR: Final = 1.5  # at most so many times what it takes by hand
_MOST_SECONDS: Final = 600
_CHECKS: Final = {
    "a check of a second": "python3 -c 'sum(range(30_000_000))'",
    "a check of nothing": "test -e w0.txt -o -e w1.txt",
}


@dataclass(frozen=True, slots=True)
class Work:
    """Commits to be merged.

    Attributes:
        teammates: how many clones they come from.
        check: the command.
    """

    teammates: int
    check: str

    def by_queue(self) -> float:
        """Merge them by the queue; the seconds from the ready supervisor to the last merge."""
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
        """Merge them as a person does; the seconds from the first fetch to the last check."""
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


def main() -> int:
    """Print a row for each check."""
    given = options(__doc__, rounds=5, teammates=8)
    rounds, teammates = (1, 2) if given.short else (given.rounds, given.teammates)
    os.environ.setdefault("GIT_CONFIG_NOSYSTEM", "1")
    rows = [["merging", "by hand s", "queue s", "factor", "at most"]]
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
