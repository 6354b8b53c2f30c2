"""The page's diffs of working copies and of entries of the merge queue."""

from __future__ import annotations

import tracemalloc

import pytest

from teamctl.web.changes import MOST, diff_of_copy, diff_of_entry
from teamctl.web.parts import CopiesReader
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError
from teamd.merges.queue import UnknownEntry
from tests.e2e.harness import Project
from tests.queues import Yard

pytestmark = pytest.mark.slow


@pytest.fixture
def yard(project: Project) -> Yard:
    """A project with a merge queue, and ann with a copy."""
    return Yard(project, "ann")


def entry(yard: Yard, entry_id: str) -> str:
    paths = yard.project.paths
    options = TeamOptions(team_dir=str(paths.root))
    return str(diff_of_entry(options, paths, entry_id)["diff"])


def test_an_entry_shows_its_changes_before_and_after_the_merge(yard: Yard) -> None:
    yard.commit("ann", a="work\n")
    yard.add("ann")
    waiting = entry(yard, "1")
    assert "+work" in waiting
    yard.commit("ann", a="later work\n")
    assert entry(yard, "1") == waiting
    yard.empty()
    assert "+work" in entry(yard, "1")
    assert "later" not in entry(yard, "1")


def test_a_long_entry_is_cut_and_not_read_as_a_whole(yard: Yard) -> None:
    """An agent may commit a file that is larger than the memory of the machine."""
    yard.commit("ann", long="y\n" * (4 * MOST))
    yard.add("ann")
    options = TeamOptions(team_dir=str(yard.project.paths.root))
    tracemalloc.start()
    found = diff_of_entry(options, yard.project.paths, "1")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found["diff"]) == MOST
    assert found["cut"].startswith("Only the first MiB is shown; `git diff ")
    assert most < 8 * MOST


def test_an_unknown_entry_is_reported(yard: Yard) -> None:
    with pytest.raises(UnknownEntry):
        entry(yard, "7")


def test_a_diff_does_not_run_programs_of_the_repository(yard: Yard) -> None:
    """A repository may name programs that convert or show files."""
    trap = yard.project.root / "trap"
    for key in ("diff.evil.command", "diff.evil.textconv", "diff.external"):
        yard.git("config", key, f"touch {trap}; cat")
    (yard.folder / ".gitattributes").write_text("*.txt diff=evil\n")
    yard.commit("ann", a="work\n")
    yard.add("ann")
    assert "+work" in entry(yard, "1")
    assert not trap.exists()


def test_a_copy_shows_committed_and_other_changes_and_long_ones_are_cut(yard: Yard) -> None:
    paths = yard.project.paths
    yard.commit("ann", a="work\n")
    (yard.copy("ann") / "new.txt").write_text("not committed\n")
    found = diff_of_copy(paths, "ann")
    assert "+work" in found["diff"]
    assert "+not committed" in found["diff"]
    assert not found["cut"]
    (yard.copy("ann") / "long.txt").write_text("x" * 99 + "\n" + "y\n" * MOST)
    assert "teamctl diff ann" in diff_of_copy(paths, "ann")["cut"]
    with pytest.raises(TeamError):
        diff_of_copy(paths, "bob")


def test_only_the_copies_of_members_that_did_something_are_looked_at_again(
    project: Project,
) -> None:
    """A look starts git in a sandbox; the page looks after each record of any conversation."""
    yard, paths = Yard(project, "ann", "bob"), project.paths
    reader = CopiesReader(paths)

    def changed() -> dict[str, int]:
        return {name: state["uncommitted"] for name, state in reader.read().items()}

    assert changed() == {"ann": 0, "bob": 0}
    for name in ("ann", "bob"):
        (yard.copy(name) / "new.txt").write_text("x")
    paths.transcript("ann").write_text("{}\n")
    assert changed() == {"ann": 1, "bob": 0}
    paths.transcript("bob").write_text("{}\n")
    assert changed() == {"ann": 1, "bob": 1}
