"""Many changes of many teammates through the queue, while processes are killed at random."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.queues import Yard
from tests.repositories import git
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.harness import Project

# Two halves of a pair do not go together; it says which pair that is.
CHECK = (
    "bad=$(cat *.txt | grep -oE '^pair-[0-9]+-[lr]$' | sort -u | cut -d- -f2 | uniq -d); "
    '[ -z "$bad" ] || { echo both of $bad; exit 1; }'
)
CONFLICTS, PAIRS = 0.3, 0.1
TIP = "refs/remotes/origin/"


@dataclass
class Worker:
    """A teammate with changes to make, one after the other.

    Attributes:
        changes: lines to add, each to a file; in a shared one, they conflict.
        entry: of the change that is in the queue.
        failed: entries that did not pass the check.
    """

    yard: Yard
    name: str
    branch: str
    changes: list[tuple[str, str]]
    entry: str = ""
    at: tuple[str, str] = ("", "")
    failed: list[str] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether all of its changes have landed."""
        return not self.changes and not self.entry

    def go_on(self) -> None:
        """Make the next change, or try once more what was not merged."""
        if self.entry:
            state = self.yard.stored()[self.entry]["state"]
            if state in ("waiting", "checking"):
                return
            if state != "merged":
                self._mend(state)
                self.entry = self.yard.add(self.name)
                return
            self.entry = ""
        if self.changes:
            self.at = self.changes.pop(0)
            file, line = self.at
            path = self.yard.copy(self.name) / f"{file}.txt"
            old = path.read_text() if path.exists() else ""
            self.yard.commit(self.name, line, **{file: f"{line}\n{old}"})
            self.entry = self.yard.add(self.name)

    def _mend(self, state: str) -> None:
        """Merge the tip, keep the lines of both, and in a pair take the other half."""
        copy, file = self.yard.copy(self.name), f"{self.at[0]}.txt"
        why = self.yard.stored()[self.entry]["why"]
        meant = f"conflicts in {file}" if state == "conflict" else "ended with exit status 1"
        assert meant in why, (self.at, state, why)
        git(copy, "merge", "--quiet", "-m", "with the tip", TIP + self.branch, check=False)
        lines = (copy / file).read_text().splitlines()
        if state == "failed":
            self.failed.append(self.entry)
            mine = self.at[1]
            self.at = (self.at[0], f"{mine}-mended")
            lines = [f"{line}-mended" if line == mine else line for line in lines]
        kept = (line for line in lines if not re.match(r"<<<<|====|>>>>", line))
        (copy / file).write_text("".join(f"{line}\n" for line in kept))
        git(copy, "add", "--all")
        git(copy, "commit", "--quiet", "-m", f"{self.at[1]} once more")


def changes(random: Random, workers: int, each: int) -> list[list[tuple[str, str]]]:
    """Return the changes of each worker: so many conflict, and so many are halves of pairs."""
    made: list[list[tuple[str, str]]] = [[] for _ in range(workers)]
    halves = [f"pair-{at}-{side}" for at in range(int(workers * each * PAIRS)) for side in "lr"]
    for at, half in enumerate(halves):
        made[at % workers].append((f"own-{at % workers}", half))
    for at, own in enumerate(made):
        while len(own) < each:
            number = len(own)
            shared = random.random() < CONFLICTS
            file = f"shared-{number % 3}" if shared else f"own-{at}-{number}"
            own.append((file, f"change-{at}-{number}"))
        random.shuffle(own)
    return made


def processes_below(pid: int) -> list[int]:
    found = []
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(child), *processes_below(int(child))]
    return found


def strike(project: Project, random: Random) -> str:
    """Kill something that is at work; what it was."""
    begun = [entry["pid"] for entry in project.log("teamd", "merging begins")][-1:]
    below = [one for pid in begun for one in processes_below(pid)]
    kind, victims = random.choice(
        [
            ("supervisor", [project.supervisor]),
            ("merger", begun),
            ("below", below),
            ("below", below),
        ]
    )
    with suppress(OSError, IndexError):
        victim = random.choice(victims)
        name = Path(f"/proc/{victim}/comm").read_text().strip()
        os.kill(victim, signal.SIGKILL)
        if kind == "supervisor":
            project.start()
        return kind if kind != "below" else name
    return ""


def campaign(
    project: Project, *, into: str, workers: int, each: int, kills: int, seed: int
) -> dict[str, int]:
    random = Random(seed)
    names = [f"w{at}" for at in range(workers)]
    settings = f"[merge]\ninto = '{into}'\ncheck = '''{CHECK}'''\n"
    yard = Yard(project, *names, settings=settings)
    begin = yard.git("rev-parse", "main")
    planned = changes(random, workers, each)
    total = sum(map(len, planned))
    crew = [Worker(yard, name, into, own) for name, own in zip(names, planned, strict=True)]
    project.start()
    struck: dict[str, int] = {}

    def go_on() -> bool:
        for worker in crew:
            worker.go_on()
        merged = sum(entry["state"] == "merged" for entry in yard.stored().values())
        if sum(struck.values()) < kills * (merged + 1) / total:
            kind = strike(project, random)
            if kind:
                struck[kind] = struck.get(kind, 0) + 1
        return all(worker.done for worker in crew)

    wait_until(go_on, timeout_seconds=1500, what="all changes have landed")
    with suppress(AssertionError):
        wait_until(lambda: not yard.leftovers(), what="nothing is left behind")
    assert yard.leftovers() == []
    judge(yard, crew, begin, into)
    return struck


def judge(yard: Yard, crew: list[Worker], begin: str, into: str) -> None:
    """See that every commit passes, that every change landed, and who hears of what."""
    commits = yard.git("rev-list", "--first-parent", f"{begin}..{into}").splitlines()
    entries = yard.stored()
    merged = [entry for entry in entries.values() if entry["state"] == "merged"]
    assert len(commits) == len(merged)
    for commit in commits:
        fresh = yard.project.root / "fresh" / commit
        fresh.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "-C", str(yard.folder), "archive", commit], capture_output=True, check=True
        )
        subprocess.run(["tar", "-x"], cwd=fresh, input=archive.stdout, check=True)
        done = subprocess.run(["bash", "-c", CHECK], cwd=fresh, capture_output=True, check=False)
        assert done.returncode == 0, (commit, done.stdout)
    texts = "".join(path.read_text() for path in fresh.parent.joinpath(commits[0]).glob("*.txt"))
    lines = texts.splitlines()
    halves = {line for line in lines if line.startswith("pair-")}
    for worker in crew:
        assert len(worker.failed) == len(set(worker.failed))
        for entry in worker.failed:
            words = f"The commit {entries[entry]['commit'][:12]} "
            yard.wait_heard(worker.name, words)
            assert yard.heard(worker.name).count(words) == 1
    mended = sum(half.endswith("-mended") for half in halves)
    assert mended == sum(len(worker.failed) for worker in crew) == len(halves) // 2
    assert len({line for line in lines if line.startswith("change-")}) + len(halves) == len(merged)


def test_a_short_campaign_lands_every_change_and_names_every_culprit(project: Project) -> None:
    campaign(project, into="team/main", workers=4, each=3, kills=6, seed=1)


def test_a_short_campaign_with_the_branch_checked_out(project: Project) -> None:
    campaign(project, into="main", workers=3, each=3, kills=6, seed=2)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("into", ["team/main", "main"])
def test_a_long_campaign_of_kills(project: Project, into: str) -> None:
    print(campaign(project, into=into, workers=8, each=25, kills=60, seed=12))  # noqa: T201
