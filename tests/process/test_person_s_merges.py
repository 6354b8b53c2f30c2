"""A merge is complete or changes nothing, whatever the person's git is configured to do."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import which

import pytest

from teamd.copies.merge import merge
from teamd.errors import TeamError
from teamd.settings import Settings
from tests.e2e.harness import Project
from tests.process.test_forbidden_work import ONTO_MAIN, follow
from tests.queues import Yard
from tests.repositories import commit, git, make_repository
from tests.shells import mounted

FORMATTER = (
    "#!/bin/sh\nfor one in {}; do echo formatted >> $one; done\necho once more >&2\nexit 1\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "left", "squash"),
    [("a.txt n.txt", "", False), ("a.txt b.txt", "b.txt", True)],
    ids=["merged files", "another file"],
)
def test_a_hook_that_formats_and_fails_does_not_leave_a_partial_merge(
    project: Project, files: str, left: str, *, squash: bool
) -> None:
    """Hooks of pre-commit do this: git does not undo a merge over files that a hook changed."""
    yard = Yard(project, "ann")
    yard.commit("ann", a="work\n", n="new\n")
    hook = yard.folder / ".git/hooks" / ("pre-commit" if squash else "pre-merge-commit")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(FORMATTER.format(files))
    hook.chmod(0o755)
    before = yard.git("rev-parse", "HEAD")
    now = "changes are left in b.txt" if left else "nothing has changed"
    with pytest.raises(TeamError, match=f"ann's work was not merged, and {now}: once more"):
        merge(project.paths, "ann", Settings(), squash=squash)
    assert yard.git("rev-parse", "HEAD") == before
    assert yard.git("diff", "--name-only", "HEAD") == left
    assert not (yard.folder / "n.txt").exists()
    assert not (yard.folder / ".git/MERGE_HEAD").exists()
    hook.unlink()
    yard.git("checkout", "-q", "--", "b.txt")
    assert merge(project.paths, "ann", Settings(), squash=squash).merged == 1


@pytest.mark.slow
def test_a_merge_while_git_holds_a_lock_changes_nothing(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", a="work\n", n="new\n")
    lock = yard.folder / ".git/index.lock"
    lock.touch()
    before = state_of(yard)
    with pytest.raises(TeamError) as refused:
        merge(project.paths, "ann", Settings())
    assert str(refused.value) == (
        f"{lock} exists, so git is running in {yard.folder} or was killed there; remove that "
        "file if "
        "git is not running, then `teamctl merge ann`"
    )
    assert state_of(yard) == before
    lock.unlink()
    assert merge(project.paths, "ann", Settings()).merged == 1


def state_of(yard: Yard) -> list[str]:
    """Return the commit, the files that differ from it, and the remains of a merge."""
    left = [one.name for one in (yard.folder / ".git").glob("*MERGE*")]
    return [yard.git("rev-parse", "HEAD"), yard.git("status", "--porcelain"), *left]


@pytest.mark.slow
@pytest.mark.parametrize("squash", [False, True])
def test_a_merge_that_cannot_be_undone_reports_the_remains_and_the_remedy(
    project: Project, *, squash: bool
) -> None:
    """Another git takes the lock during the merge, and is killed."""
    yard = Yard(project, "ann")
    yard.commit("ann", a="work\n", n="new\n")
    lock = yard.folder / ".git/index.lock"
    hook = yard.folder / ".git/hooks" / ("pre-commit" if squash else "pre-merge-commit")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {lock}\nexit 1\n")
    hook.chmod(0o755)
    before = state_of(yard)
    with pytest.raises(TeamError) as refused:
        merge(project.paths, "ann", Settings(), squash=squash)
    hook.unlink()
    assert str(refused.value) == (
        f"ann's work was not merged, and git could not undo the merge in {yard.folder}: the merge "
        f"has changed a.txt, n.txt; remove {lock} if git is not running, then `git reset "
        "--merge` undoes "
        "it"
    )
    lock.unlink()
    yard.git("reset", "--merge")
    assert state_of(yard) == before


@pytest.mark.slow
@pytest.mark.parametrize("squash", [False, True])
def test_a_merge_whose_git_is_killed_leaves_neither_files_nor_a_lock(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, squash: bool
) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", a="work\n", n="new\n")
    before = state_of(yard)
    program = tmp_path / "programs/git"
    program.parent.mkdir()
    killed = "echo work >a.txt; echo new >n.txt; touch .git/index.lock; kill -9 $$"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *" merge --"*f*) cd {yard.folder}; {killed};; esac\n'
        f'exec {which("git")} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    with pytest.raises(TeamError, match="was not merged, and nothing has changed"):
        merge(project.paths, "ann", Settings(), squash=squash)
    monkeypatch.undo()
    assert state_of(yard) == before
    assert not (yard.folder / ".git/index.lock").exists()


@pytest.mark.slow
def test_a_merge_is_undone_once_another_git_releases_the_index(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", a="work\n", n="new\n")
    lock = yard.folder / ".git/index.lock"
    hook = yard.folder / ".git/hooks/pre-merge-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {lock}\n(sleep 0.3; rm {lock}) >/dev/null 2>&1 &\nexit 1\n")
    hook.chmod(0o755)
    before = state_of(yard)
    with pytest.raises(TeamError, match="was not merged, and nothing has changed"):
        merge(project.paths, "ann", Settings())
    assert state_of(yard) == before


@pytest.mark.slow
def test_merge_options_of_the_person_s_branch_do_not_cause_a_partial_merge(
    project: Project,
) -> None:
    yard = Yard(project, "ann")
    yard.git("config", "branch.main.mergeOptions", "--no-commit")
    made = yard.commit("ann", a="work\n")
    done = merge(project.paths, "ann", Settings())
    assert (done.merged, yard.git("rev-parse", "HEAD^2")) == (1, made)
    assert yard.git("status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.slow
@pytest.mark.parametrize("options", ["--squash", "-s ours"])
def test_the_queue_moves_a_branch_exactly_to_the_commit_that_it_checked(
    project: Project, options: str
) -> None:
    """With `--squash` git moved only the files, not the branch, and reported the work as merged."""
    yard = Yard(project, "ann", settings=ONTO_MAIN)
    yard.git("config", "branch.main.mergeOptions", options)
    yard.commit("ann", a="work\n")
    yard.add("ann")
    entry = yard.empty()["1"]
    assert (entry["state"], entry["merge"]) == ("merged", yard.git("rev-parse", "main"))
    assert yard.git("status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.slow
def test_a_completed_merge_is_reported_as_merged_even_if_git_fails(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git may fail after its commit, for example if it cannot read a `diff.orderFile`."""
    yard = Yard(project, "ann", "bob", settings=ONTO_MAIN)
    program = tmp_path / "programs/git"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n{which("git")} "$@" && case "$*" in *" merge "*) exit 1; esac\n'
    )
    program.chmod(0o755)
    made = [yard.commit("ann", a="work\n"), yard.commit("bob", b="work\n")]
    yard.add("bob")
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    assert merge(project.paths, "ann", Settings()).merged == 1
    assert yard.empty()["1"]["state"] == "merged"
    monkeypatch.undo()
    assert yard.git("rev-parse", "HEAD^^2", "HEAD^2").split() == made
    assert yard.git("status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.slow
def test_a_submodule_behind_its_commit_does_not_block_the_queue(
    project: Project, tmp_path: Path
) -> None:
    """Git does not update submodules itself: the next entry would wait for the change before it."""
    yard = Yard(project, "ann", settings=ONTO_MAIN)
    module = make_repository(tmp_path / "module")
    yard.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module), "mod")
    yard.git("config", "submodule.recurse", "true")
    commit(yard.folder, "module")
    copy = follow(yard, "ann")
    newer = commit(module, "newer")
    git(copy, "update-index", "--cacheinfo", f"160000,{newer},mod")
    for text in ("one\n", "two\n"):
        yard.commit("ann", a=text)
        git(copy, "update-index", "--cacheinfo", f"160000,{newer},mod")
        git(copy, "commit", "--quiet", "--amend", "--no-edit")
        yard.add("ann")
    (yard.folder / "mod/a.txt").write_text("mine\n")
    assert [one["why"] for one in yard.empty().values()] == ["", ""]
    assert (yard.folder / "mod/a.txt").read_text() == "mine\n"
    yard.git("update-index", "--cacheinfo", f"160000,{newer[::-1]},mod")
    with pytest.raises(TeamError, match=r"uncommitted work in .*: mod;"):
        merge(project.paths, "ann", yard.settings)


@pytest.mark.slow
def test_a_full_disk_is_not_blamed_on_the_work(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", big=os.urandom(500_000).hex())
    yard.add("ann")
    project.paths.checks.mkdir(exist_ok=True)
    with mounted(project.paths.checks, "-t", "tmpfs", "-o", "size=512k", "tmpfs"):
        assert [(e["state"], e["why"]) for e in yard.empty().values()] == [("checking", "")]
    assert yard.empty()["1"]["state"] == "merged"


@pytest.mark.slow
def test_a_missing_repository_is_reported_by_the_queue(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", a="work\n")
    yard.add("ann")
    away = (yard.folder / ".git").rename(yard.folder / "away")
    assert "is no working tree of a git" in yard.empty()["1"]["why"]
    away.rename(yard.folder / ".git")
    assert yard.empty()["1"]["state"] == "merged"
