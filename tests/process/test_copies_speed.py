"""A working copy of a large repository is ready about as fast as a bare `git clone --shared`."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path
from statistics import median

import pytest

from teamd.copies import clone
from teamd.copies.record import Copy
from teamd.files.paths import TeamPaths
from tests.repositories import git, make_repository

pytestmark = pytest.mark.slow


ROUNDS = 5
MOST = 1.5  # times the duration of the bare clone
MOST_KILOBYTES = 8_000  # an index, and no objects


def make_large(folder: Path, *, files: int, megabytes: int) -> Path:
    """Make a repository with that many files, and a history of that many megabytes."""
    source, chance = make_repository(folder), random.Random(1)
    for number in range(files):
        inner = source / f"d{number % 200}"
        inner.mkdir(exist_ok=True)
        (inner / f"f{number}.txt").write_text(f"line {number}\n" * chance.randint(5, 60))
    git(source, "add", "-A")
    git(source, "commit", "-qm", "files")
    for number in range(megabytes // 10):
        (source / "large.bin").write_bytes(chance.randbytes(10_000_000))
        git(source, "add", "-A")
        git(source, "commit", "-qm", f"large {number}")
    git(source, "rm", "-q", "large.bin")
    git(source, "commit", "-qm", "gone")
    git(source, "gc", "-q")
    return source


def judge(copy: Copy) -> None:
    """Check that a copy has no objects of its own and needs little space."""
    found = [one.name for one in (copy.folder / ".git/objects").rglob("*") if one.is_file()]
    assert found == ["alternates"]
    du = subprocess.run(["du", "-sk", copy.folder / ".git"], capture_output=True, check=True)
    assert int(du.stdout.split()[0]) < MOST_KILOBYTES


def test_a_copy_has_no_objects_of_its_own(tmp_path: Path) -> None:
    source = make_large(tmp_path / "project", files=20, megabytes=10)
    paths = TeamPaths(source / ".team")
    paths.create()
    judge(clone.make_copy(paths, "alice", "default", source).copy)


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_copy_is_ready_about_as_fast_as_a_bare_clone(tmp_path: Path) -> None:
    """Measured with a large repository; in a small one the sandbox dominates."""
    source = make_large(tmp_path / "project", files=20_000, megabytes=200)
    paths = TeamPaths(source / ".team")
    paths.create()
    bare, ours = [], []
    for number in range(ROUNDS):
        begun = time.perf_counter()
        git(tmp_path, "clone", "-q", "--shared", str(source), str(tmp_path / f"bare{number}"))
        bare.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        copy = clone.make_copy(paths, f"alice{number}", "default", source).copy
        ours.append(time.perf_counter() - begun)
    assert median(ours) <= MOST * median(bare), (ours, bare)
    judge(copy)
