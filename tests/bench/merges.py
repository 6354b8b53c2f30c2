"""The merge queue compared with `git merge` by hand. `python -m tests.bench.merges`.

Both merge the same commits of several clones into a branch, one after the other, and run the same
check on the files of each merge. By hand means in one clone, without a sandbox and without records.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.ruler import interleave, median, options, ratio, table
from tests.e2e.harness import opened
from tests.queues import Yard
from tests.repositories import git
from tests.waiting import wait_until

_BRANCH: Final = "team/main"
_FACTOR: Final = 1.5  # the wanted time, at most, as a multiple of that by hand
_MOST_SECONDS: Final = 600
_CHECK: Final = "python3 -c 'sum(range(30_000_000))'"  # takes about a second


@dataclass(frozen=True, slots=True)
class Work:
    """Commits to be merged, one in each of several clones."""

    teammates: int

    def by_queue(self) -> float:
        """Merge by queue; return the seconds from the ready supervisor to the last merge."""
        with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as project:
            settings = f'[merge]\ncheck = """{_CHECK}"""\n'
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
                subprocess.run(["bash", "-c", _CHECK], cwd=clone, check=True)
                git(clone, "push", "--quiet", "origin", _BRANCH)
            return time.perf_counter() - begun

    def _names(self) -> list[str]:
        return [f"w{at}" for at in range(self.teammates)]

    def _commit(self, yard: Yard) -> None:
        for name in self._names():
            yard.commit(name, **{name: "work\n"})


def main() -> int:
    """Print the table."""
    rounds, teammates = (1, 2) if options(__doc__).short else (5, 8)
    os.environ.setdefault("GIT_CONFIG_NOSYSTEM", "1")
    work = Work(teammates)
    cases: dict[str, Callable[[], float]] = {"hand": work.by_hand, "queue": work.by_queue}
    samples = interleave(cases, rounds)
    hand, queue = (f"{median(samples[case]):.2f}" for case in ("hand", "queue"))
    factor = f"{ratio(samples, 'queue', 'hand'):.2f}"
    row = [f"{teammates} commits, a check of a second", hand, queue, factor, f"{_FACTOR:g}"]
    head = ["merging", "by hand s", "queue s", "factor", "at most"]
    print(table("Merges", [head, row]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
