"""`discard` loses no work, even work that git cannot store, hides, or sees too late."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from teamd.copies import clone, copy_status, record
from teamd.copies.copy_status import opened_diff
from teamd.copies.discard import discard, remove_one
from teamd.copies.merge import merge
from teamd.copies.record import Copy
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.settings import Settings
from tests.repositories import commit, copy_project, git, make_repository

pytestmark = pytest.mark.slow


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    """The directory of a team in a project; alice has a working copy."""
    return copy_project(tmp_path / "project", "alice")


@pytest.fixture
def copy(paths: TeamPaths) -> Copy:
    return record.get(paths, "alice")


def names_in(copy: Copy) -> set[str]:
    return {one.name for one in copy.folder.iterdir()}


def add_all(copy: Copy) -> None:
    git(copy.folder, "add", "--all")
    git(copy.folder, "commit", "-qm", "all")


@pytest.mark.parametrize("committed", [False, True])
def test_a_repository_inside_a_copy_is_moved_aside_completely(
    paths: TeamPaths, copy: Copy, committed: bool
) -> None:
    """A commit contains only the id of the inner commit."""
    make_repository(copy.folder / "lib", work="hours of work\n")
    if committed:
        add_all(copy)
    with pytest.raises(TeamError, match=r"has work that nobody merged"):
        discard(paths, "alice")
    kept = Path(discard(paths, "alice", force=True).kept)
    assert kept.parent == paths.removed
    assert (kept / "lib/work.txt").read_text() == "hours of work\n"
    assert not (copy.folder / "lib").exists()
    assert not copy_status.look(paths, copy).any


def test_a_commit_without_the_files_of_an_inner_repository_is_not_merged(
    paths: TeamPaths, copy: Copy
) -> None:
    make_repository(copy.folder / "lib")
    add_all(copy)
    with pytest.raises(TeamError) as refused:
        merge(paths, "alice", Settings())
    made = git(copy.folder, "rev-parse", "HEAD")
    assert str(refused.value) == (
        f"the commit {made[:12]} contains no files of lib, a repository of its own; "
        "`git rm --cached` that, move its .git away, and commit its files"
    )
    (copy.folder / ".gitmodules").write_text('[submodule "lib"]\npath = lib\nurl = ../lib\n')
    add_all(copy)
    assert merge(paths, "alice", Settings()).merged == 2, "it says where that comes from"


def test_a_diff_names_an_inner_repository(paths: TeamPaths, copy: Copy) -> None:
    make_repository(copy.folder / "lib")
    (copy.folder / "new.txt").write_text("new\n")
    with opened_diff(paths, copy) as file:
        shown = file.read().decode()
    said = "lib/ is a repository of its own: what is in it is not shown, and no commit holds it\n"
    assert shown.startswith(f"{said}diff --git a/new.txt")


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_changes_hidden_from_git_by_index_flags_are_found(
    paths: TeamPaths, copy: Copy, flag: str
) -> None:
    git(copy.folder, "update-index", f"--{flag}", "a.txt")
    assert not copy_status.look(paths, copy).any
    (copy.folder / "a.txt").write_text("hours of work\n")
    with pytest.raises(TeamError, match="0 commits and 1 file"):
        discard(paths, "alice")
    with opened_diff(paths, copy) as file:
        assert b"+hours of work" in file.read()
    kept = discard(paths, "alice", force=True).kept
    assert git(paths.home, "show", f"{kept}:a.txt") == "hours of work"
    assert (copy.folder / "a.txt").read_text() == "one\n"


def test_discard_removes_all_changes_and_leaves_ignored_files(paths: TeamPaths, copy: Copy) -> None:
    commit(copy.folder, "mine", a="mine\n", n="n\n")
    (copy.folder / ".gitignore").write_text("kept\n")
    (copy.folder / "kept").write_text("kept\n")
    (copy.folder / "b.txt").unlink()
    (copy.folder / "deep/er").mkdir(parents=True)
    (copy.folder / "deep/er/new").write_text("new\n")
    (copy.folder / "a.txt").write_text("staged\n")
    git(copy.folder, "add", "a.txt")
    git(copy.folder, "switch", "-q", "-c", "other")
    (copy.folder / ".git/MERGE_MSG").write_text("in the middle\n")
    kept = discard(paths, "alice", force=True).kept
    assert git(paths.home, "show", f"{kept}:deep/er/new") == "new"
    assert sorted(names_in(copy)) == [".git", "a.txt", "b.txt", "kept"]
    assert git(copy.folder, "status", "--porcelain", "--branch") == "## team/alice\n?? kept"
    assert git(copy.folder, "rev-parse", "HEAD") == copy.base
    assert (copy.folder / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("force", [False, True])
def test_files_written_during_a_discard_stay_in_place_or_are_kept_aside(
    paths: TeamPaths, copy: Copy, force: bool
) -> None:
    """A teammate keeps writing; each of its files can be read somewhere afterwards."""
    commit(copy.folder, "mine", a="mine\n")
    discard(paths, "alice", force=True)  # this discard has a commit to undo
    ended = threading.Event()
    written: list[str] = []

    def write() -> None:
        while not ended.wait(0.003):
            name = f"w{len(written)}.txt"
            (copy.folder / name).write_text(name)
            written.append(name)

    writer = threading.Thread(target=write)
    writer.start()
    kept, refused = [], []
    try:
        for _ in range(4):
            try:
                kept.append(discard(paths, "alice", force=force).kept)
            except TeamError as error:
                refused.append(error)
    finally:
        ended.set()
        writer.join()
    assert not (force and refused)
    refs = git(paths.home, "for-each-ref", "--format=%(refname)", copy.discarded).split()
    assert {one for one in kept if one} <= set(refs)
    there = names_in(copy)
    for ref in refs:
        there |= {*git(paths.home, "ls-tree", "--name-only", ref).split()}
    assert set(written) <= there


def test_work_that_appears_after_the_check_for_work_is_not_discarded_without_force(
    paths: TeamPaths, copy: Copy
) -> None:
    late, ended = copy.folder / "late.txt", threading.Event()

    def write() -> None:
        """Write once the second sandbox is made: the first one looks for work."""
        made = set[Path]()
        while len(made) < 2 and not ended.is_set():
            made.update(paths.work.glob(".scratch-*"))
        late.write_text("work\n")

    for _ in range(3):
        writer = threading.Thread(target=write)
        writer.start()
        try:
            with suppress(TeamError):
                assert discard(paths, "alice").kept == ""
        finally:
            ended.set()
            writer.join()
        assert late.read_text() == "work\n"
        late.unlink()
        ended.clear()


@pytest.mark.parametrize("place", [".gitignore", "sub/.gitattributes", ".git/HEAD", ".git/index"])
def test_a_pipe_in_a_copy_is_reported_and_does_not_block_commands(
    paths: TeamPaths, copy: Copy, place: str
) -> None:
    pipe = copy.folder / place
    pipe.unlink(missing_ok=True)
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(TeamError) as refused:
        copy_status.look(paths, copy)
    assert str(refused.value) == (
        f"the working copy {copy.folder} is damaged ({place} is a pipe or a device, and git "
        "reads it); "
        "`teamctl discard alice --force` creates a new one and keeps this one aside"
    )
    kept = Path(discard(paths, "alice", force=True).kept)
    assert (kept / place).is_fifo()
    assert not copy_status.look(paths, record.get(paths, "alice")).any


def test_removing_a_copy_keeps_its_unmerged_work(paths: TeamPaths, copy: Copy) -> None:
    (copy.folder / "mine.txt").write_text("hours of work\n")
    kept = remove_one(paths, "alice")
    assert git(paths.home, "show", f"{kept}:mine.txt") == "hours of work"
    assert not copy.folder.exists()
    assert record.find(paths, "alice") is None
    assert remove_one(paths, "alice") == ""
    assert clone.make_copy(paths, "alice", "default", paths.home).copy.base == copy.base


def test_removing_an_unused_copy_leaves_nothing(paths: TeamPaths, copy: Copy) -> None:
    before = git(paths.home, "for-each-ref", "refs/teamd/discarded")
    assert remove_one(paths, "alice") == ""
    assert git(paths.home, "for-each-ref", "refs/teamd/discarded") == before
    assert not copy.folder.exists()
