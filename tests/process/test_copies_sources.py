"""The repositories that can have working copies, and the errors for all others."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.copies import clone, copy_status, move_branch, record
from teamd.copies.clone import CopyResult
from teamd.copies.copy_status import opened_diff
from teamd.copies.discard import discard
from teamd.copies.merge import merge
from teamd.copies.record import Copy
from teamd.copies.sandboxed_git import open_sandboxed_git
from teamd.copies.source import GitKilled, Source, read_head
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.settings import Settings
from tests.repositories import commit, copy_project, git, make_repository
from tests.shells import mounted
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    """The directory of a team in an empty project."""
    (tmp_path / "project").mkdir()
    made = TeamPaths(tmp_path / "project/.team")
    made.create()
    return made


def make(paths: TeamPaths, name: str = "alice") -> CopyResult:
    return clone.make_copy(paths, name, "default", paths.home)


def copied(paths: TeamPaths) -> Copy:
    """Make a repository with `make_repository`; return alice's copy of it."""
    copy_project(paths.home, "alice")
    return record.get(paths, "alice")


def refusal(paths: TeamPaths) -> str:
    """Return the reason for refusing a copy; check that nothing is left of it."""
    with pytest.raises(TeamError) as refused:
        make(paths)
    left = [one.name for one in paths.work.iterdir()]
    assert left == ["alice.lock"]
    assert "refs/teamd" not in git(paths.home, "for-each-ref", check=False)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def work_in(copy: Copy, text: str = "by alice\n") -> None:
    """Commit a change to a.txt in a copy."""
    (copy.folder / "a.txt").write_text(text)
    git(copy.folder, "commit", "-qam", "by alice")


def test_a_folder_without_a_repository_is_refused(paths: TeamPaths) -> None:
    assert refusal(paths) == (
        f"{paths.home} is no working tree of a git repository, so there can be no working copy of "
        "it; `git init` and a first commit make it one"
    )


def test_a_bare_repository_is_refused(paths: TeamPaths) -> None:
    git(paths.home, "init", "-q", "--bare")
    assert "is no working tree of a git repository" in refusal(paths)


def test_an_empty_repository_is_refused(paths: TeamPaths) -> None:
    git(paths.home, "init", "-q")
    assert refusal(paths) == (
        f"the repository {paths.home} has no commit yet, and a working copy needs one; "
        "`git commit` makes it"
    )


def test_a_folder_inside_a_repository_is_refused(paths: TeamPaths) -> None:
    top = make_repository(paths.home.parent)
    assert refusal(paths) == (
        f"the workspace {paths.home} is a folder in the repository {top}, and a working copy is of "
        "a whole one; work there, or set [team] workspace to it"
    )


def test_a_repository_that_borrows_objects_is_refused(paths: TeamPaths, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    git(tmp_path, "clone", "-q", "--shared", str(other), str(tmp_path / "borrowing"))
    shutil.move(tmp_path / "borrowing/.git", paths.home / ".git")
    git(paths.home, "reset", "-q", "--hard")
    assert "borrows objects itself" in refusal(paths)
    git(paths.home, "repack", "-qad")
    (paths.home / ".git/objects/info/alternates").unlink()
    assert (make(paths).copy.folder / "a.txt").read_text() == "one\n"


def test_a_partial_clone_is_refused(paths: TeamPaths, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    git(other, "config", "uploadpack.allowFilter", "true")
    shutil.rmtree(paths.home)
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{other}", str(paths.home))
    paths.create()
    assert refusal(paths) == (
        f"the repository {paths.home} is a partial clone, whose missing files no working copy "
        "could fetch; make a full clone of it"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_repository_of_another_user_is_refused(paths: TeamPaths) -> None:
    make_repository(paths.home)
    for path in (paths.home, paths.home / ".git"):
        os.chown(path, 65534, 65534)
    with pytest.raises(TeamError, match=r"belongs to another user.*safe\.directory"):
        make(paths)


def test_a_shallow_clone_can_be_copied(paths: TeamPaths, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    commit(other, "second", a="second\n")
    shutil.rmtree(paths.home)
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{other}", str(paths.home))
    paths.create()
    copy = make(paths).copy
    assert git(copy.folder, "log", "--format=%s") == "second"
    work_in(copy)
    git(paths.home, "config", "user.name", "ann")
    git(paths.home, "config", "user.email", "ann@example.org")
    assert merge(paths, "alice", Settings()).merged == 1
    assert (paths.home / "a.txt").read_text() == "by alice\n"


def test_a_repository_with_a_detached_head_can_be_copied_but_not_merged_into(
    paths: TeamPaths,
) -> None:
    make_repository(paths.home)
    git(paths.home, "checkout", "-q", "--detach")
    copy = make(paths).copy
    assert git(copy.folder, "branch", "--show-current") == "team/alice"
    work_in(copy)
    with pytest.raises(TeamError) as refused:
        merge(paths, "alice", Settings())
    assert str(refused.value) == (
        f"{paths.home} is not on a branch; `git switch BRANCH`, then merge again"
    )


def test_a_linked_working_tree_can_be_copied(paths: TeamPaths, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    shutil.rmtree(paths.home)
    git(other, "worktree", "add", "-q", "-b", "side", str(paths.home))
    paths.create()
    copy = make(paths).copy
    elsewhere = TeamPaths(other / ".team")
    elsewhere.create()
    make(elsewhere)
    listed = git(other, "for-each-ref", "--format=%(refname)", "refs/teamd").split()
    assert listed == ["refs/teamd/base/alice", "refs/teamd/base/alice+project"]
    work_in(copy)
    assert merge(paths, "alice", Settings()).branch == "side"
    assert (paths.home / "a.txt").read_text() == "by alice\n"


def test_uncommitted_changes_are_not_copied_and_the_person_is_informed(paths: TeamPaths) -> None:
    make_repository(paths.home)
    (paths.home / "a.txt").write_text("mine\n")
    (paths.home / "new.txt").write_text("mine\n")
    made = make(paths)
    assert made.lacks == "your uncommitted changes (2 files) are not in it"
    assert (made.copy.folder / "a.txt").read_text() == "one\n"
    work_in(made.copy)
    with pytest.raises(TeamError, match=r"you have uncommitted work in .*: a.txt; commit or stash"):
        merge(paths, "alice", Settings())
    assert (paths.home / "a.txt").read_text() == "mine\n"


def test_submodules_are_empty_in_a_copy_and_the_person_is_informed(
    paths: TeamPaths, tmp_path: Path
) -> None:
    inner = make_repository(tmp_path / "inner")
    make_repository(paths.home)
    git(paths.home, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "lib")
    git(paths.home, "commit", "-qm", "lib")
    made = make(paths)
    assert made.lacks == "its submodules are empty: lib"
    assert copy_status.look(paths, made.copy).uncommitted == ()
    work_in(made.copy)
    assert merge(paths, "alice", Settings()).merged == 1
    assert (paths.home / "lib/a.txt").read_text() == "one\n"


def test_git_lfs_files_are_pointers_in_a_copy_and_the_person_is_informed(paths: TeamPaths) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    make_repository(paths.home, a="one\n", large=pointer)
    (paths.home / ".gitattributes").write_text("large.txt filter=lfs diff=lfs merge=lfs -text\n")
    git(paths.home, "add", ".gitattributes")
    git(paths.home, "commit", "-qm", "attributes")
    made = make(paths)
    assert made.lacks == "of what git-lfs keeps (1) it has the pointers alone"
    assert (made.copy.folder / "large.txt").read_text() == pointer
    assert copy_status.look(paths, made.copy).uncommitted == ()


def test_output_that_is_parsed_is_in_english_and_hooks_have_the_person_s_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    speaker = tmp_path / "git"
    speaker.write_text('#!/bin/sh\necho "$LC_ALL"\n')
    speaker.chmod(0o755)
    source = Source(tmp_path, str(speaker))
    assert source.ask("status") == "C"
    assert source.run("merge", quiet=False).stdout == b"de_DE.UTF-8\n"


@pytest.mark.parametrize("folder", [".git/hooks", "own-hooks"])
def test_git_that_teamd_runs_on_its_own_does_not_run_programs_of_the_repository(
    paths: TeamPaths, folder: str
) -> None:
    """A command of an agent may have planted it; only merges that the person asks for run hooks."""
    copied(paths)
    trap, fired = paths.home / folder / "reference-transaction", paths.home.parent / "fired"
    trap.parent.mkdir(exist_ok=True)
    trap.write_text(f"#!/bin/sh\necho $0 >>{fired}\n")
    trap.chmod(0o700)
    git(paths.home, "config", "core.hooksPath", folder)
    git(paths.home, "config", "core.fsmonitor", str(trap))
    source, before = Source.of(paths.home), git(paths.home, "rev-parse", "HEAD")
    fired.unlink(missing_ok=True)
    after = git(paths.home, "commit-tree", "-p", before, "-m", "next", f"{before}^{{tree}}")
    source.check_writable(before)
    assert source.list_changes() == []
    source.count_changes()
    move_branch.fast_forward(source, "main", before, after)
    make(paths, "bob")
    work_in(record.get(paths, "alice"))
    discard(paths, "alice", force=True)
    assert not fired.exists(), fired.read_text()
    git(paths.home, "status")
    git(paths.home, "update-ref", "refs/heads/other", after)
    assert len(fired.read_text().splitlines()) > 1, "git of the person does run both"


def test_a_sha256_repository_can_be_copied(paths: TeamPaths) -> None:
    git(paths.home, "init", "-q", "--object-format=sha256")
    work_in(copied(paths))
    assert merge(paths, "alice", Settings()).merged == 1


def test_garbage_collection_in_the_source_removes_nothing_from_a_copy(paths: TeamPaths) -> None:
    """Neither its base, whose branch is gone, nor agent's objects that the source once had."""
    make_repository(paths.home)
    lost = commit(paths.home, "lost", a="lost\n")
    copy = make(paths).copy
    commit(paths.home, "unreachable", b="only here\n")
    (copy.folder / "b.txt").write_text("only here\n")  # the source has this object for now
    with open_sandboxed_git(paths, copy.folder, copy.origin, writable=True) as confined:
        confined.do("git commit -qam 'by alice'")  # as in the agent's own sandbox
    git(paths.home, "checkout", "-q", "--orphan", "other")
    git(paths.home, "commit", "-qm", "anew")
    git(paths.home, "branch", "-D", "main")
    git(paths.home, "reflog", "expire", "--expire=now", "--all")
    git(paths.home, "gc", "-q", "--prune=now")
    assert git(copy.folder, "rev-parse", "HEAD^") == lost
    assert git(copy.folder, "show", "HEAD^:a.txt") == "lost"
    assert git(copy.folder, "show", "HEAD:b.txt") == "only here"
    assert git(paths.home, "rev-parse", "refs/teamd/base/alice") == lost


def test_a_copy_has_no_objects_of_its_own(paths: TeamPaths) -> None:
    folder = copied(paths).folder / ".git/objects"
    assert [one.name for one in folder.rglob("*") if one.is_file()] == ["alternates"]


def test_a_killed_git_is_not_blamed_on_the_copy(paths: TeamPaths) -> None:
    copy = copied(paths)
    with (
        open_sandboxed_git(paths, copy.folder, copy.origin) as confined,
        pytest.raises(GitKilled, match=r"git was killed in .*; try again"),
    ):
        confined.do("sh -c 'kill -TERM $$'")


@pytest.mark.strace
def test_a_sandbox_killed_at_its_start_does_not_block_git_for_ever(paths: TeamPaths) -> None:
    """The child of bubblewrap waits for its parent's word, and would keep git's outputs open."""
    copy = copied(paths)
    killed_at_its_word = ("strace", "-qq", "-o", "/dev/null", "-e", "inject=write:signal=KILL")
    with open_sandboxed_git(paths, copy.folder, copy.origin) as confined:
        begun = replace(confined, argv=(*killed_at_its_word, *confined.argv))
        with pytest.raises(GitKilled, match=r"git was killed in .*; try again"):
            begun.do("git status")


def test_a_placeholder_in_a_copy_may_vanish_while_git_starts(paths: TeamPaths) -> None:
    """A mount on it would vanish too, and the next step of bubblewrap would fail."""
    copy = copied(paths)
    inner = copy.folder / ".team"
    shown = {}
    for kind in ("a placeholder", "a team"):
        inner.mkdir(exist_ok=True)
        if kind == "a team":
            (inner / "config.json").touch()
        with open_sandboxed_git(paths, copy.folder, copy.origin) as confined:
            shown[kind] = str(inner) in confined.argv
    assert shown == {"a placeholder": False, "a team": True}


@pytest.mark.parametrize("name", ["HEAD", "index", "packed-refs", "shallow"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_replacements_of_git_s_own_files_are_not_read(
    paths: TeamPaths, name: str, kind: str
) -> None:
    """Git would wait for a pipe for ever, and print lines of `shallow` that it cannot parse."""
    make_repository(paths.home)
    path = paths.home / ".git" / name
    secret = paths.home.parent / "secret"
    secret.write_text("machine x password hunter2\n")
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(secret)
    said = ""
    try:
        make(paths)
        Source.of(paths.home).do("status")
    except TeamError as error:
        said = str(error)
    assert "hunter2" not in said
    if kind == "pipe" or name == "shallow":
        assert said == f"{path} is not a regular file, and git would read it; check and remove it"


def test_the_shallow_boundary_is_read_from_a_regular_file_only(paths: TeamPaths) -> None:
    copy = copied(paths)
    shallow = paths.home / ".git/shallow"
    head = read_head(Source.of(paths.home))
    with open_sandboxed_git(paths, copy.folder, copy.origin) as confined:
        clone.hand_over(confined, head)
        shallow.symlink_to("HEAD")
        with pytest.raises(TeamError, match="shallow cannot be read: Too many levels of symbolic"):
            clone.hand_over(confined, head)
        shallow.unlink()
        os.mkfifo(shallow)
        with pytest.raises(TeamError, match="shallow is not a regular file; check and remove it"):
            clone.hand_over(confined, head)


def test_teams_of_one_project_have_separate_refs(paths: TeamPaths) -> None:
    make_repository(paths.home)
    other = TeamPaths(paths.home / ".teams/red")
    other.create()
    make(paths)
    clone.make_copy(other, "alice", "red", paths.home)
    listed = git(paths.home, "for-each-ref", "--format=%(refname)", "refs/teamd")
    assert listed.split() == ["refs/teamd/base/alice", "refs/teamd/base/alice@red"]


@pytest.mark.parametrize("name", ["a:b", 'a"\n\\b c'])
def test_a_project_may_have_any_name(tmp_path: Path, name: str) -> None:
    """A colon or line end separates the folders in a list of git."""
    odd = TeamPaths(make_repository(tmp_path / name) / ".team")
    odd.create()
    copy = make(odd).copy
    work_in(copy)
    (copy.folder / "b.txt").write_text("not committed\n")
    with opened_diff(odd, copy) as shown:
        assert b"+not committed" in shown.read()
    kept = discard(odd, "alice", force=True).kept
    assert git(odd.home, "show", f"{kept}:b.txt") == "not committed"
    work_in(copy, "again\n")
    assert merge(odd, "alice", Settings()).merged == 1


def test_a_merge_that_conflicts_names_the_files_and_changes_nothing(paths: TeamPaths) -> None:
    work_in(copied(paths))
    commit(paths.home, "mine", a="mine\n")
    before = git(paths.home, "rev-parse", "HEAD")
    for squash in (False, True):
        with pytest.raises(TeamError) as refused:
            merge(paths, "alice", Settings(), squash=squash)
        assert str(refused.value) == (
            f"alice's work conflicts with main in a.txt, and nothing has changed; `teamctl send "
            f'alice "git merge {before[:12]}, resolve the conflicts, commit"` has it solve that'
        )
        assert git(paths.home, "rev-parse", "HEAD") == before
        assert git(paths.home, "status", "--porcelain") == ""
        assert (paths.home / "a.txt").read_text() == "mine\n"
    copy = record.get(paths, "alice").folder
    git(copy, "merge", "-q", before[:12], check=False)
    (copy / "a.txt").write_text("both\n")
    git(copy, "commit", "-qam", "both")
    assert merge(paths, "alice", Settings()).merged == 2, "not the commit of the person"
    assert (paths.home / "a.txt").read_text() == "both\n"


def test_a_merge_over_untracked_files_changes_nothing(paths: TeamPaths) -> None:
    copy = copied(paths)
    (copy.folder / "new.txt").write_text("by alice\n")
    git(copy.folder, "add", "new.txt")
    git(copy.folder, "commit", "-qm", "by alice")
    (paths.home / "new.txt").write_text("mine\n")
    with pytest.raises(TeamError, match=r"would replace files of yours in .*: new\.txt; move"):
        merge(paths, "alice", Settings())
    assert (paths.home / "new.txt").read_text() == "mine\n"


def test_work_on_another_branch_is_not_ignored(paths: TeamPaths) -> None:
    copy = copied(paths)
    git(copy.folder, "switch", "-q", "-c", "mine")
    work_in(copy)
    with pytest.raises(TeamError, match="alice is on the branch 'mine', and `merge` takes team/"):
        merge(paths, "alice", Settings())
    with pytest.raises(TeamError, match="has work that nobody merged: 1 commit and 0 files"):
        discard(paths, "alice")
    kept = discard(paths, "alice", force=True).kept
    assert git(paths.home, "show", f"{kept}:a.txt") == "by alice"
    assert git(copy.folder, "branch", "--show-current") == "team/alice"


def test_a_merge_during_another_merge_is_refused(paths: TeamPaths) -> None:
    work_in(copied(paths))
    (paths.home / ".git/MERGE_HEAD").write_text(git(paths.home, "rev-parse", "HEAD") + "\n")
    with pytest.raises(
        TeamError, match=r"a merge or rebase is under way in .*; finish or abort it first"
    ):
        merge(paths, "alice", Settings())


def test_discarded_work_is_kept_for_30_days(paths: TeamPaths) -> None:
    copy = copied(paths)
    (copy.folder / "new.txt").write_text("new\n")
    source = Source.of(paths.home)
    source.move_ref("refs/teamd/discarded/bob/20200101T000000Z", copy.base)
    source.move_ref("refs/teamd/discarded/bob/29990101T000000Z-ab12", copy.base)
    kept = discard(paths, "alice", force=True).kept
    listed = git(paths.home, "for-each-ref", "--format=%(refname)", "refs/teamd/discarded").split()
    assert listed == [kept, "refs/teamd/discarded/bob/29990101T000000Z-ab12"]
    assert discard(paths, "alice").kept == ""


def test_discarded_work_of_a_teammate_whose_name_looks_like_an_old_timestamp_is_kept(
    paths: TeamPaths,
) -> None:
    make_repository(paths.home)
    name = "20200101T000000Z"
    (make(paths, name).copy.folder / "new.txt").write_text("new\n")
    kept = discard(paths, name, force=True).kept
    discard(paths, name, force=True)
    assert git(paths.home, "show", f"{kept}:new.txt") == "new"


def test_a_copy_stays_in_place_if_the_repository_cannot_be_written(paths: TeamPaths) -> None:
    make_repository(paths.home)
    copy = make(paths).copy
    work_in(copy)
    own = paths.home / ".git"
    with mounted(own, "--bind", str(own)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(own)], check=True)
        with pytest.raises(TeamError, match="Read-only file system"):
            discard(paths, "alice", force=True)
    assert (copy.folder / "a.txt").read_text() == "by alice\n"
    assert discard(paths, "alice", force=True).kept.startswith("refs/teamd/discarded/alice/")


def test_a_copy_that_git_cannot_read_is_created_again_with_force(paths: TeamPaths) -> None:
    copy = copied(paths)
    (copy.folder / "new.txt").write_text("new\n")
    (copy.folder / ".git/HEAD").unlink()
    for ask in (lambda: copy_status.look(paths, copy), lambda: discard(paths, "alice")):
        with pytest.raises(
            TeamError, match=r"is damaged .*`teamctl discard alice --force` creates"
        ):
            ask()
    kept = discard(paths, "alice", force=True).kept
    assert (paths.removed / kept / "new.txt").read_text() == "new\n"
    assert not copy_status.look(paths, copy).any


def test_a_merge_killed_before_it_was_recorded_is_recorded_by_the_next_one(
    paths: TeamPaths,
) -> None:
    copy = copied(paths)
    work_in(copy)
    merge(paths, "alice", Settings())
    head = git(paths.home, "rev-parse", "HEAD")
    record.write(paths, copy)  # as before the merge
    assert merge(paths, "alice", Settings()).commit == head
    assert copy_status.look(paths, record.get(paths, "alice")).ahead == 0


def test_a_merge_that_the_person_interrupts_changes_nothing(paths: TeamPaths) -> None:
    work_in(copied(paths))
    hook, begun = paths.home / ".git/hooks/commit-msg", paths.home.parent / "begun"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 60\n")
    hook.chmod(0o755)
    before = git(paths.home, "rev-parse", "HEAD")
    program = "import sys; from teamd.copies.merge import merge; "
    program += "from teamd.files.paths import TeamPaths; from pathlib import Path; "
    program += "from teamd.settings import Settings; "
    program += "merge(TeamPaths(Path(sys.argv[1])), 'alice', Settings())"
    argv = [sys.executable, "-c", program, str(paths.root)]
    with subprocess.Popen(argv, start_new_session=True, stderr=subprocess.DEVNULL) as merging:
        wait_until(begun.exists, what="the hook runs")
        os.killpg(merging.pid, signal.SIGINT)
        assert merging.wait(30) != 0
    assert git(paths.home, "rev-parse", "HEAD") == before
    assert git(paths.home, "status", "--porcelain") == ""
    assert not (paths.home / ".git/MERGE_HEAD").exists()
    hook.unlink()
    assert merge(paths, "alice", Settings()).merged == 1


def test_a_small_pack_of_large_files_needs_little_memory(paths: TeamPaths, tmp_path: Path) -> None:
    """Git reads a whole file into memory below its limit for large files: 300 KB took 300 MB."""
    make_repository(paths.home)
    other = make_repository(tmp_path / "other")
    (other / "zeros").write_bytes(bytes(1 << 25))
    git(other, "add", "zeros")
    git(other, "commit", "-qm", "many zeros")
    limited = tmp_path / "git"
    limited.write_text(f'#!/bin/sh\nulimit -d > {tmp_path}/most\nulimit -d 24576\nexec git "$@"\n')
    limited.chmod(0o755)
    objects = subprocess.run(
        ["git", "-C", other, "pack-objects", "-q", "--revs", "--stdout"],
        input=b"HEAD\n", capture_output=True, check=True,
    ).stdout  # fmt: skip
    (tmp_path / "pack").write_bytes(objects)
    with (tmp_path / "pack").open("rb") as pack:
        Source(paths.home, str(limited)).add_pack(pack.fileno())
    assert (
        git(paths.home, "cat-file", "-s", f"{git(other, 'rev-parse', 'HEAD')}:zeros") == "33554432"
    )
    assert (tmp_path / "most").read_text() == "4194304\n"
