"""A project that is moved or copied takes its working copies along."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.copies import clone, copy_status, record
from teamd.copies.discard import discard
from teamd.copies.merge import merge
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.sandbox.policy import Origin
from teamd.settings import Settings
from tests.e2e.harness import Project
from tests.repositories import git, make_repository
from tests.strict.replies import say, use


@pytest.fixture
def before(tmp_path: Path) -> TeamPaths:
    """A team whose alice has a copy with a commit."""
    paths = TeamPaths(make_repository(tmp_path / "project") / ".team")
    paths.create()
    copy = clone.make_copy(paths, "alice", "default", paths.home).copy
    (copy.folder / "a.txt").write_text("by alice\n")
    git(copy.folder, "commit", "-qam", "by alice")
    return paths


@pytest.mark.slow
def test_working_copies_still_work_after_their_project_was_moved(before: TeamPaths) -> None:
    home = before.home.rename(before.home.with_name("moved"))
    after = TeamPaths(home / ".team")
    assert copy_status.look(after, record.get(after, "alice")).ahead == 1
    assert merge(after, "alice", Settings()).merged == 1
    assert (home / "a.txt").read_text() == "by alice\n"
    (after.copy("alice") / "new.txt").write_text("new\n")
    kept = discard(after, "alice", force=True).kept
    assert git(home, "show", f"{kept}:new.txt") == "new"
    settled = clone.settle(after, record.get(after, "alice"))
    assert not settled.moved
    assert record.get(after, "alice") == settled
    git(settled.folder, "fsck", "--connectivity-only")


def test_a_copied_project_merges_into_itself(before: TeamPaths) -> None:
    """The original project stays in place and has the same copy."""
    first, second = before.home, before.home.with_name("second")
    subprocess.run(["cp", "-a", first, second], check=True)
    after = TeamPaths(second / ".team")
    assert merge(after, "alice", Settings()).merged == 1
    assert (second / "a.txt").read_text() == "by alice\n"
    assert (first / "a.txt").read_text() == "one\n"
    assert clone.settle(after, record.get(after, "alice")).origin.folder == second
    shutil.rmtree(first)
    assert git(after.copy("alice"), "status", "--porcelain") == ""


def test_a_link_to_a_project_does_not_count_as_a_move(before: TeamPaths) -> None:
    link = before.home.with_name("link")
    link.symlink_to(before.home)
    assert not record.get(TeamPaths(link / ".team"), "alice").moved


def test_a_missing_repository_is_named(before: TeamPaths) -> None:
    """The workspace may be outside of the team's project."""
    gone = before.home.with_name("gone")
    copy = record.get(before, "alice")
    record.write(before, replace(copy, origin=Origin(folder=gone, objects=gone / "objects")))
    with pytest.raises(TeamError) as refused:
        merge(before, "alice", Settings())
    assert str(refused.value) == (
        f"alice's working copy is of {gone}, which is not there any more; move it back"
    )


@pytest.mark.slow
def test_a_teammate_continues_in_a_copy_that_was_moved(project: Project) -> None:
    make_repository(project.folder)
    project.start()
    copy = clone.make_copy(project.paths, "alice", "default", project.folder).copy
    (copy.folder / ".git/objects/info/alternates").write_text("/elsewhere/objects\n")
    record.write(project.paths, replace(copy, made_in=Path("/elsewhere/.team/work/alice")))
    project.stage.play("alice", use(("bash", {"command": "git log --format=%s"})), say("Done."))
    project.do("teamctl", "spawn", "alice", "coder", "Go.", "--worktree", "--wait")
    assert project.asked("alice", least=2)[1].asked.last_results[0].text == "first"
    assert not record.get(project.paths, "alice").moved
