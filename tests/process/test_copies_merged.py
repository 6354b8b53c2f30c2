"""The unmerged work of a copy depends on the target branch, not on earlier merges."""

from __future__ import annotations

import pytest

from teamd.copies import copy_status, record
from teamd.copies.merge import merge
from teamd.settings import Settings
from tests.e2e.harness import Project
from tests.queues import Yard
from tests.repositories import commit, git

pytestmark = pytest.mark.slow


@pytest.fixture
def yard(project: Project) -> Yard:
    """A project with a merge queue, and ann with a copy."""
    return Yard(project, "ann")


def test_a_merge_that_was_reverted_can_be_repeated(yard: Yard) -> None:
    yard.commit("ann", a="work\n")
    assert merge(yard.project.paths, "ann", Settings()).merged == 1
    yard.git("reset", "-q", "--hard", "HEAD~1")
    assert yard.add("ann") == "1", "the queue takes it as well"
    said = yard.project.do("teamctl", "merge", "ann")
    assert said.startswith("merged 1 commit of ann into main")
    assert (yard.folder / "a.txt").read_text() == "work\n"
    refused = yard.project.run("teamctl", "merge", "ann")
    assert refused.stdout == "ann has no commits that are not in main; nothing to merge\n"


@pytest.mark.parametrize("squash", [False, True])
def test_work_merged_into_one_branch_can_be_merged_into_another(yard: Yard, squash: bool) -> None:
    paths = yard.project.paths
    yard.commit("ann", a="work\n")
    yard.git("switch", "-q", "-c", "feature")
    assert merge(paths, "ann", Settings(), squash=squash).merged == 1
    assert merge(paths, "ann", Settings(), squash=squash).merged == 0
    yard.git("switch", "-q", "main")
    assert yard.add("ann") == "1"
    assert merge(paths, "ann", Settings(), squash=squash).merged == 1
    assert merge(paths, "ann", Settings()).merged == 0
    assert (yard.folder / "a.txt").read_text() == "work\n"


def test_a_copy_without_work_does_not_bring_the_person_s_commits_along(yard: Yard) -> None:
    yard.git("switch", "-q", "-c", "release", "HEAD~1")
    assert merge(yard.project.paths, "ann", Settings()).merged == 0


def test_a_squash_of_work_that_is_already_there_says_so(yard: Yard) -> None:
    yard.commit("ann", a="work\n")
    mine = commit(yard.folder, "the same by hand", a="work\n")
    said = yard.project.do("teamctl", "merge", "ann", "--squash")
    assert said == "ann has no commits that are not in main; nothing to merge\n"
    assert yard.git("rev-parse", "HEAD") == mine
    assert not (yard.folder / ".git/SQUASH_MSG").exists()
    assert copy_status.look(yard.project.paths, record.get(yard.project.paths, "ann")).ahead == 0


def test_a_squash_explains_how_more_work_avoids_conflicts(yard: Yard) -> None:
    yard.commit("ann", a="one\nmine 1\n")
    said = yard.project.do("teamctl", "merge", "ann", "--squash", "--message", "first")
    made = yard.git("rev-parse", "--short=12", "HEAD")
    assert said.endswith(f'; before more work `teamctl send ann "git merge {made}"`\n')
    git(yard.copy("ann"), "merge", "-q", made)
    yard.commit("ann", a="one\nmine 1\nmine 2\n")
    yard.project.do("teamctl", "merge", "ann", "--squash", "--message", "second")
    assert (yard.folder / "a.txt").read_text() == "one\nmine 1\nmine 2\n"


def test_a_commit_that_a_teammate_was_told_to_merge_is_not_garbage_collected(
    project: Project,
) -> None:
    yard = Yard(project, "ann", "bob")
    yard.commit("ann", a="new\n")
    yard.commit("bob", a="other\n")
    project.start()
    yard.add("ann")
    yard.add("bob")
    yard.wait("2", "conflict")
    git(yard.copy("bob"), "merge", "-q", "-X", "ours", "origin/team/main")
    yard.git("merge", "-q", "--squash", "team/main")
    yard.git("commit", "-q", "-m", "all")
    yard.git("branch", "-q", "-D", "team/main")
    yard.git("gc", "-q", "--prune=now")
    assert "+other" in project.do("teamctl", "diff", "bob")
    git(yard.copy("bob"), "fsck", "--connectivity-only")
