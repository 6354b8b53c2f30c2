"""A merge is whole, or leaves all as it was, whatever the person's own git is told to do."""

from __future__ import annotations

import os
from shutil import which
from typing import TYPE_CHECKING

import pytest

from teamd.copies.merge import merge
from teamd.errors import TeamError
from teamd.settings import Settings
from tests.mounts import mounted
from tests.process.test_forbidden_work import ONTO_MAIN, follow
from tests.queues import Yard
from tests.repositories import commit, git, make_repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.harness import Project

FORMATTER = (
    "#!/bin/sh\nfor one in {}; do echo formatted >> $one; done\necho once more >&2\nexit 1\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize(
    ("files", "left"),
    [("a.txt n.txt", ""), ("a.txt b.txt", "b.txt")],
    ids=["merged files", "another file"],
)
def test_a_hook_that_formats_and_fails_leaves_no_half_merge(
    project: Project, files: str, left: str, *, squash: bool
) -> None:
    """As those of pre-commit do: git does not take a merge back over files that a hook changed."""
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
@pytest.mark.parametrize("option", ["--squash", "--no-commit"])
def test_options_of_the_person_s_branch_make_no_half_merge(project: Project, option: str) -> None:
    yard = Yard(project, "ann")
    yard.git("config", "branch.main.mergeOptions", option)
    made = yard.commit("ann", a="work\n")
    done = merge(project.paths, "ann", Settings())
    assert (done.merged, yard.git("rev-parse", "HEAD^2")) == (1, made)
    assert yard.git("status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.slow
@pytest.mark.parametrize("options", ["--squash", "-s ours"])
def test_the_queue_moves_a_branch_to_the_very_commit_that_it_checked(
    project: Project, options: str
) -> None:
    """With `--squash` git moved the files and not the branch, and it was told as merged."""
    yard = Yard(project, "ann", settings=ONTO_MAIN)
    yard.git("config", "branch.main.mergeOptions", options)
    yard.commit("ann", a="work\n")
    yard.add("ann")
    entry = yard.empty()["1"]
    assert (entry["state"], entry["merge"]) == ("merged", yard.git("rev-parse", "main"))
    assert yard.git("status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.slow
def test_a_merge_that_was_made_is_told_as_that_however_git_ends(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git may fail behind its commit, as with a `diff.orderFile` that it cannot read."""
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
def test_a_submodule_that_is_behind_its_commit_holds_nothing_up(
    project: Project, tmp_path: Path
) -> None:
    """Git updates none by itself: the next entry would wait for what the one before has brought."""
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
def test_a_full_disk_says_nothing_about_the_work(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", big=os.urandom(500_000).hex())
    yard.add("ann")
    project.paths.checks.mkdir(exist_ok=True)
    with mounted(project.paths.checks, "-t", "tmpfs", "-o", "size=512k", "tmpfs"):
        assert [(e["state"], e["why"]) for e in yard.empty().values()] == [("checking", "")]
    assert yard.empty()["1"]["state"] == "merged"


@pytest.mark.slow
def test_the_queue_says_that_the_repository_is_gone(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", a="work\n")
    yard.add("ann")
    away = (yard.folder / ".git").rename(yard.folder / "away")
    assert "is no working tree of a git" in yard.empty()["1"]["why"]
    away.rename(yard.folder / ".git")
    assert yard.empty()["1"]["state"] == "merged"
