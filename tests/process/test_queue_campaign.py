"""Many teammates send changes through the merge queue while processes are killed at random."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.e2e.harness import Project
from tests.queues import PAIRS_CHECK, Worker, Yard, changes, go_on
from tests.waiting import wait_until

_WAIT_SHARE = 0.7  # share of skipped kills; without it, every kill would hit the start of a merge


def processes_below(pid: int) -> list[int]:
    found = []
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(child), *processes_below(int(child))]
    return found


def strike(project: Project, random: Random) -> str:
    """Kill a process of the running merge; return its kind, or "" without a kill."""
    begun = [entry["pid"] for entry in project.log("teamd", "merging begins")][-1:]
    below = [one for pid in begun for one in processes_below(pid)]
    if not below or random.random() < _WAIT_SHARE:
        return ""
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
    settings = f"[merge]\ninto = '{into}'\ncheck = '''{PAIRS_CHECK}'''\n"
    yard = Yard(project, *names, settings=settings)
    begin = yard.git("rev-parse", "main")
    planned = changes(random, workers, each)
    total = sum(map(len, planned))
    crew = [Worker(yard, name, into, own) for name, own in zip(names, planned, strict=True)]
    project.start()
    struck: dict[str, int] = {}

    def goes_on() -> bool:
        landed = go_on(crew)
        merged = sum(entry["state"] == "merged" for entry in yard.stored().values())
        if sum(struck.values()) < kills * (merged + 1) / total:
            kind = strike(project, random)
            if kind:
                struck[kind] = struck.get(kind, 0) + 1
        return landed

    wait_until(goes_on, timeout_seconds=1500, what="all changes have landed")
    with suppress(AssertionError):
        wait_until(lambda: not yard.leftovers(), what="nothing is left behind")
    assert yard.leftovers() == []
    judge(yard, crew, begin, into)
    return struck


def judge(yard: Yard, crew: list[Worker], begin: str, into: str) -> None:
    """Check that every commit passes, every change landed and each failure was reported once."""
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
        done = subprocess.run(
            ["bash", "-c", PAIRS_CHECK], cwd=fresh, capture_output=True, check=False
        )
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


@pytest.mark.slow
def test_a_short_campaign_lands_every_change_in_the_checked_out_branch(project: Project) -> None:
    campaign(project, into="main", workers=2, each=2, kills=3, seed=2)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("into", ["team/main", "main"])
def test_a_long_campaign_lands_every_change(project: Project, into: str) -> None:
    print(campaign(project, into=into, workers=8, each=25, kills=60, seed=12))  # noqa: T201
