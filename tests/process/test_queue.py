"""The merge queue with real processes: merges, refusals and their mail."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from teamd.command_line.documents import with_iso_times
from teamd.copies import move_branch, record
from teamd.copies.source import GitKilled, Source
from teamd.files.paths import TeamPaths
from teamd.overview.branch import BranchAhead, read_ahead
from teamd.team.roster import Team
from tests.e2e.harness import Project
from tests.queues import CHECK, Yard
from tests.repositories import commit, git
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


AHEAD = {
    "into": "team/main",
    "onto": "main",
    "ahead": 2,
    "text": "team/main is 2 commits ahead of main",
    "command": "git merge team/main",
}
AWAITED = "until [ -e go ]; do sleep 0.05; done"  # a check that ends at a signal of the test


def test_work_is_merged_in_order_and_returned_after_a_conflict_or_failure(
    project: Project,
) -> None:
    yard = Yard(project, "ann", "bob", "cay")
    first = yard.commit("ann", "left", a="left\n")
    yard.commit("bob", "conflict", a="mine\n")
    yard.commit("cay", "right", c="right\n")
    project.start()
    added = (project.do("teamctl", "queue", "add", name) for name in ("ann", "bob", "cay"))
    ids = [said.split()[-1] for said in added]
    merged = yard.wait(ids[0], "merged")
    assert merged["commit"] == first
    assert yard.wait(ids[1], "conflict")["why"] == "conflicts in a.txt"
    assert "`sh check.sh` ended with exit status 1" in yard.wait(ids[2], "failed")["why"]
    assert yard.merges() == ["Merge team/ann: left"]
    body = yard.git("log", "-1", "--format=%an %ae%n%(trailers:unfold)", "team/main")
    assert body == f"teamd teamd@project\nTeammate: ann\nCheck: {CHECK}"
    assert yard.git("rev-parse", "team/main^2") == first
    shown = json.loads(project.do("teamctl", "queue", "--json"))
    assert shown["queue"] == [with_iso_times(one) for one in yard.entries().values()]
    assert shown["merge"] == AHEAD
    assert json.loads(project.do("teamctl", "team", "--json"))["merge"] == AHEAD
    said = project.do("teamctl", "team") + project.do("teamctl", "queue")
    assert said.count("team/main is 2 commits ahead of main; `git merge team/main` takes them") == 2
    tip = yard.git("rev-parse", "team/main")
    for name, words in (("bob", "conflicts with what is there in: 'a.txt'"), ("cay", "both")):
        yard.wait_heard(name, words)
        assert "git merge origin/team/main" in yard.heard(name)
        assert yard.git("-C", str(yard.copy(name)), "rev-parse", "origin/team/main") == tip
    assert "- Merge team/ann: left" in yard.heard("cay"), "what it does not go with"
    assert yard.git("for-each-ref", "refs/teamd/queue") == ""
    assert yard.git("status", "--porcelain") == "?? team.toml\n?? turns.json"
    yard.git("merge", "-q", "team/main")
    assert "ahead of" not in project.do("teamctl", "queue")


def test_git_counts_the_commits_again_only_if_a_branch_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`top` and the page ask several times a second."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "first", a="1\n")
    paths, team = TeamPaths(folder / ".team"), Team(merges=(folder, "team/main"))
    assert read_ahead(paths, team) is None
    git(folder, "switch", "-q", "-c", "team/main")
    for number in range(2):
        commit(folder, "more", a=f"{number + 2}\n")
    git(folder, "switch", "-q", "main")
    path = os.environ["PATH"]
    ahead = read_ahead(paths, team)
    assert ahead is not None
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no git
    assert read_ahead(paths, team) == ahead == BranchAhead("team/main", "main", 2)
    monkeypatch.setenv("PATH", path)
    git(folder, "pack-refs", "--all")
    git(folder, "merge", "-q", "team/main~1")
    left = read_ahead(paths, team)
    assert left == BranchAhead("team/main", "main", 1)
    git(folder, "merge", "-q", "team/main")
    assert read_ahead(paths, team) is None


def test_proven_work_is_queued_automatically_and_returned_if_it_is_not_merged(
    project: Project,
) -> None:
    """Its task is reopened, so that its teammate can complete it again."""
    settings = f'[merge]\ncheck = "{CHECK}"\nauto = true\n'
    yard = Yard(project, "ann", "bob", settings=settings)
    yard.commit("ann", a="left\n")
    yard.commit("bob", b="right\n")
    project.start()
    for name in ("ann", "bob"):
        project.do("teamctl", "task", "add", f"By {name}", "--check", "true", "--owner", name)
    project.do("teamctl", "task", "update", "1", "--status", "completed")
    merged = yard.wait("1", "merged")
    assert (merged["task"], merged["teammate"]) == ("1", "ann")
    assert "Task: 1" in yard.git("log", "-1", "--format=%(trailers)", "team/main")
    project.do("teamctl", "task", "update", "2", "--status", "completed")
    yard.wait("2", "failed")
    yard.wait_heard("bob", "set task 2 to completed again")

    def reopened() -> bool:  # right after the entry has failed
        task = json.loads(project.do("teamctl", "task", "show", "2", "--json"))
        return (task["status"], task["owner"], task["proven"]) == ("in_progress", "bob", False)

    wait_until(reopened, what="its task is open again")
    yard.commit("bob", b="fine\n")
    project.do("teamctl", "task", "update", "2", "--status", "completed")
    yard.wait("3", "merged")
    assert yard.merges() == ["Merge team/ann: By ann", "Merge team/bob: By bob"]


def test_the_queue_gets_exactly_the_commit_that_was_checked(project: Project) -> None:
    """The teammate continues to commit in its copy while the check runs."""
    yard = Yard(project, "ann", settings='[merge]\ncheck = "true"\nauto = true\n')
    checked = yard.commit("ann", a="left\n")
    project.start()
    project.do("teamctl", "task", "add", "Work", "--check", AWAITED, "--owner", "ann")
    project.do("teamctl", "task", "update", "1", "--status", "completed")
    clone = project.paths.check_place("1") / "tree"
    wait_until((clone / "a.txt").exists, what="the clone is made")
    yard.commit("ann", a="more\n")
    (clone / "go").touch()
    assert yard.wait("1", "merged")["commit"] == checked
    task = json.loads(project.do("teamctl", "task", "show", "1", "--json"))
    assert task["attempts"][0]["commit"] == checked


def test_work_that_cannot_be_queued_is_refused_with_a_sentence(project: Project) -> None:
    yard = Yard(project, "ann", settings="\n")
    yard.commit("ann", a="left\n")
    add = ("teamctl", "queue", "add", "ann")
    no_check = project.run(*add)
    assert no_check.status == 1
    assert no_check.complaint == (
        "teamctl: the queue has no check, and merges nothing without one; set [merge] check in "
        "team.toml to a command such as 'pytest -q', then `teamctl queue add ann`"
    )
    project.ask_no_service(f'[merge]\ncheck = "{CHECK}"\n')
    (yard.copy("ann") / "a.txt").write_text("more\n")
    uncommitted = project.run(*add)
    assert uncommitted.status == 1
    assert uncommitted.complaint.startswith("teamctl: ann has uncommitted work: a.txt; ")
    yard.commit("ann")
    assert (yard.add("ann"), yard.add("ann")) == ("1", "1"), "once"
    shown = project.do("teamctl", "queue")
    assert shown.split()[:7] == ["ID", "STATE", "TEAMMATE", "TASK", "COMMIT", "SINCE", "WHY"]
    assert yard.empty()["1"]["state"] == "merged"
    nothing = project.run(*add)
    assert (nothing.status, nothing.complaint) == (
        1,
        "teamctl: ann has no commits that are not in team/main",
    )
    gone = project.run("teamctl", "queue", "remove", "1")
    assert (gone.status, gone.complaint) == (
        1,
        "teamctl: 1 has left the queue: it is merged; `teamctl queue` lists it for a day",
    )
    unknown = project.run("teamctl", "queue", "remove", "7")
    assert unknown.status == 1
    assert unknown.complaint == (
        "teamctl: nothing in the queue has the id '7'; `teamctl queue add NAME` adds what NAME "
        "committed"
    )


def test_an_entry_can_be_removed_during_its_check_and_the_next_continues(project: Project) -> None:
    yard = Yard(
        project, "ann", "bob", settings='[merge]\ncheck = "test ! -e slow.txt || sleep 99"\n'
    )
    yard.commit("ann", slow="x\n")
    yard.commit("bob", b="x\n")
    project.start()
    assert (yard.add("ann"), yard.add("bob")) == ("1", "2")
    yard.wait("1", "checking")
    assert "is not in the queue now" in project.do("teamctl", "queue", "remove", "1")
    yard.wait("2", "merged")
    assert list(yard.entries()) == ["2"]
    assert yard.merges() == ["Merge team/bob: work"]
    wait_until(lambda: not yard.leftovers(), what="nothing is left of either")


def test_a_checked_out_branch_waits_for_a_clean_tree_and_moves_with_its_files(
    project: Project,
) -> None:
    yard = Yard(project, "ann", settings=f'[merge]\ninto = "main"\ncheck = "{CHECK}"\n')
    yard.commit("ann", c="new\n")
    (yard.folder / "b.txt").write_text("mine\n")
    project.start()
    yard.add("ann")
    wait_until(lambda: yard.stored()["1"]["why"], what="it says why it waits")
    assert yard.stored()["1"]["state"] == "waiting"
    assert yard.stored()["1"]["why"] == (
        f"main is checked out in {yard.folder}, where you have uncommitted work: b.txt; commit or "
        "stash it"
    )
    yard.git("commit", "--quiet", "-am", "mine")
    yard.wait("1", "merged")
    assert (yard.folder / "c.txt").read_text() == "new\n"
    assert yard.git("status", "--porcelain", "--untracked-files=no") == ""
    assert yard.git("log", "--first-parent", "--format=%s", "-2") == "Merge team/ann: work\nmine"


def test_an_untracked_file_in_the_way_is_kept_and_the_entry_waits(project: Project) -> None:
    yard = Yard(project, "ann", "bob", settings=f'[merge]\ninto = "main"\ncheck = "{CHECK}"\n')
    yard.commit("ann", c="new\n")
    (yard.folder / "c.txt").write_text("mine\n")
    yard.add("ann")
    yard.commit("bob", b="work\n")
    yard.add("bob")
    assert "would replace" in yard.empty()["1"]["why"]
    assert yard.stored()["2"]["state"] == "merged", "it is in the way of nobody else"
    assert (yard.folder / "c.txt").read_text() == "mine\n"
    (yard.folder / "c.txt").unlink()
    assert yard.empty()["1"]["state"] == "merged"


@pytest.mark.parametrize("left", ["files", "cut", "ends of lines", "all but the branch"])
def test_files_left_by_a_killed_git_are_repaired(project: Project, left: str) -> None:
    yard = Yard(project, "ann", settings=f'[merge]\ninto = "main"\ncheck = "{CHECK}"\n')
    yard.commit("ann", a="new contents\n", c="new\n")
    (yard.folder / "c.txt").write_text("in the way\n")
    yard.add("ann")
    entry = yard.empty()["1"]
    assert "would replace" in entry["why"]
    assert entry["passed"]
    (yard.folder / "c.txt").unlink()
    document = json.loads(project.paths.queue.read_bytes())
    document["queue"][0]["landing"] = True
    project.paths.queue.write_text(json.dumps(document))
    if left == "all but the branch":
        yard.git("read-tree", "-m", "-u", entry["onto"], entry["merge"])
    else:
        end = "\r\n" if left == "ends of lines" else "\n"
        yard.git("config", "core.autocrlf", str(end == "\r\n").lower())
        (yard.folder / "a.txt").write_text("new con" if left == "cut" else f"new contents{end}")
        (yard.folder / "c.txt").write_text(f"new{end}")
    (yard.folder / ".git" / "index.lock").touch()
    assert yard.empty()["1"]["state"] == "merged"
    assert yard.git("status", "--porcelain", "--untracked-files=no") == ""
    assert (yard.folder / "c.txt").read_text() == "new\n"


@pytest.mark.parametrize("name", ["index.lock", "ORIG_HEAD.lock"])
def test_a_lock_left_by_a_killed_git_is_removed_once_it_is_old(project: Project, name: str) -> None:
    yard = Yard(project, "ann", settings=f'[merge]\ninto = "main"\ncheck = "{CHECK}"\n')
    yard.commit("ann", c="new\n")
    lock = yard.folder / ".git" / name
    lock.touch()
    yard.add("ann")
    assert "File exists" in yard.empty()["1"]["why"], "it may be that of somebody who lives"
    assert lock.exists()
    os.utime(lock, (0, 0))
    yard.empty()
    assert not lock.exists()
    assert yard.empty()["1"]["state"] == "merged"


def test_the_person_s_changes_are_never_mistaken_for_those_of_a_killed_git(
    project: Project,
) -> None:
    yard = Yard(project, "ann", settings=f'[merge]\ninto = "main"\ncheck = "{CHECK}"\n')
    yard.commit("ann", a="new\n", c="new\n")
    (yard.folder / "c.txt").write_text("in the way\n")
    yard.add("ann")
    assert "would replace" in yard.empty()["1"]["why"], "it has passed"
    (yard.folder / "a.txt").write_text("mine\n")
    (yard.folder / "c.txt").unlink()
    assert "uncommitted" in yard.empty()["1"]["why"], "it waits for that"
    assert (yard.folder / "a.txt").read_text() == "mine\n"
    yard.git("checkout", "--quiet", "a.txt")
    assert yard.empty()["1"]["state"] == "merged"


def test_a_branch_does_not_move_if_git_is_killed_while_it_lists_the_working_trees(
    project: Project,
) -> None:
    yard = Yard(project, "ann", settings=f'[merge]\ninto = "main"\ncheck = "{CHECK}"\n')
    dying = project.root / "git"
    dying.write_text(
        '#!/bin/sh\ncase "$*" in *"worktree list"*) kill -9 $$ ;; esac\nexec git "$@"\n'
    )
    dying.chmod(0o755)
    source = Source(yard.folder, str(dying))
    commit = yard.commit("ann", c="new\n")
    yard.git("fetch", "--quiet", str(yard.copy("ann")), commit)
    before = yard.git("rev-parse", "main")
    with pytest.raises(GitKilled, match="git worktree was killed"):
        move_branch.fast_forward(source, "main", before, commit)
    assert yard.git("rev-parse", "main") == before


def test_changes_of_the_person_during_a_check_are_kept(project: Project) -> None:
    """They look like the remains of a git that was killed in the middle."""
    yard = Yard(project, "ann", settings=f'[merge]\ninto = "main"\ncheck = "{AWAITED}"\n')
    yard.commit("ann", a="two\nthree\n")
    yard.add("ann")
    clone = project.paths.checks / "queue" / "tree"
    file = yard.folder / "a.txt"
    with yard.emptied():
        wait_until((clone / "a.txt").exists, what="the clone is made")
        file.write_text("two\n")
        yard.git("add", "--all", "a.txt")
        (clone / "go").touch()
    assert "uncommitted" in yard.stored()["1"]["why"]
    assert file.read_text() == "two\n"
    assert yard.git("diff", "--cached", "--name-only") == "a.txt"


def test_a_symbolic_name_of_a_branch_is_refused(project: Project) -> None:
    """The branch that is checked out would move without its files."""
    yard = Yard(project, "ann", settings='[merge]\ninto = "trunk"\ncheck = "true"\n')
    yard.git("symbolic-ref", "refs/heads/trunk", "refs/heads/main")
    yard.commit("ann", a="work\n")
    yard.add("ann")
    why = "trunk is another name for main; set [merge] into to that"
    assert yard.empty()["1"]["why"] == why


def test_a_branch_that_is_being_rebased_is_not_moved(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.git("checkout", "--quiet", "-b", "team/main")
    commit(yard.folder, "mine", b="mine\n")
    yard.git("checkout", "--quiet", "main")
    commit(yard.folder, "theirs", b="theirs\n")
    yard.git("checkout", "--quiet", "team/main")
    git(yard.folder, "rebase", "main", check=False)
    before = yard.git("rev-parse", "team/main")
    yard.commit("ann", a="work\n")
    yard.add("ann")
    why = f"team/main is being rebased in {yard.folder}; finish or abort that"
    assert yard.empty()["1"]["why"] == why
    assert yard.git("rev-parse", "team/main") == before
    yard.git("rebase", "--abort")
    assert yard.empty()["1"]["state"] == "merged"


@pytest.mark.parametrize("lock", ["refs/heads/team/main.lock", "packed-refs.lock"])
def test_a_ref_lock_of_a_killed_git_does_not_block_the_queue(project: Project, lock: str) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", a="work\n")
    yard.git("branch", "team/main")
    left = yard.folder / ".git" / lock
    left.touch()
    yard.add("ann")
    if "heads" in lock:
        assert "File exists" in yard.empty()["1"]["why"], "it may be alive"
    os.utime(left, (0, 0))
    assert yard.empty()["1"]["state"] == "merged"
    assert not left.exists(), "it is removed"


def test_a_lock_of_a_killed_git_does_not_hide_the_tip_from_a_teammate_with_a_conflict(
    project: Project,
) -> None:
    """With an older tip the teammate would find nothing to repair, and be told so again."""
    yard = Yard(project, "ann", "bob")
    yard.commit("ann", a="hers\n")
    yard.commit("bob", a="his\n")
    left = yard.copy("bob") / ".git/refs/remotes/origin/team/main.lock"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    for name in ("ann", "bob"):
        yard.add(name)
    assert yard.empty()["2"]["state"] == "conflict"
    shown = git(yard.copy("bob"), "rev-parse", "refs/remotes/origin/team/main")
    assert shown == yard.git("rev-parse", "team/main")


def test_a_ref_kept_by_a_lock_of_a_killed_git_is_removed_later(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", a="work\n")
    yard.git("update-ref", "refs/teamd/queue/9", "HEAD")
    lock = yard.folder / ".git/refs/teamd/queue/9.lock"
    lock.touch()
    os.utime(lock, (2**32, 2**32))  # never old, no matter how slow this machine is
    project.start()
    yard.add("ann")
    yard.wait("1", "merged")
    wait_until(
        lambda: any(entry["code"] for entry in project.log("teamd", "merging ended")),
        what="it cannot be removed yet",
    )
    assert yard.leftovers() == ["refs/teamd/queue/9"]
    os.utime(lock, (0, 0))
    wait_until(lambda: not yard.leftovers(), what="it is removed")


def test_a_merge_that_was_garbage_collected_while_it_waited_is_made_again(project: Project) -> None:
    yard = Yard(project, "ann", settings=f'[merge]\ninto = "main"\ncheck = "{CHECK}"\n')
    yard.commit("ann", c="new\n")
    (yard.folder / "c.txt").write_text("mine\n")
    yard.add("ann")
    assert "would replace" in yard.empty()["1"]["why"], "it has passed"
    yard.git("gc", "--quiet", "--prune=now")
    (yard.folder / "c.txt").unlink()
    entry = yard.empty()["1"]
    assert (entry["state"], entry["why"]) == ("merged", "")


def test_protected_paths_come_from_the_tip_and_wait_for_the_person_s_merge(
    project: Project,
) -> None:
    settings = f'[merge]\ncheck = "{CHECK}"\n[tasks]\nprotect = ["check.sh", "new/**"]\n'
    yard = Yard(project, "ann", "bob", settings=settings)
    for name in ("ann", "bob"):
        (yard.copy(name) / "check.sh").write_text("exit 0\n")
        (yard.copy(name) / "new").mkdir()
        (yard.copy(name) / "new" / "x").write_text("x\n")
    yard.commit("ann", a="left\n")
    yard.add("ann")
    merged = yard.empty()["1"]
    assert merged["state"] == "merged"
    assert merged["why"] == "left out, as protected: check.sh, new/x; `teamctl merge ann` takes it"
    assert yard.git("diff", "--name-only", "main", "team/main") == "a.txt"
    yard.commit("bob")
    yard.add("bob")
    refused = yard.empty()["2"]
    assert refused["state"] == "failed"
    assert refused["why"].startswith("left out, as protected: check.sh, new/x;")
    yard.git("checkout", "--quiet", "team/main")
    project.do("teamctl", "merge", "ann")
    assert yard.git("diff", "--name-only", "main") == "a.txt\ncheck.sh\nnew/x"


def test_a_sandbox_that_fails_to_start_is_not_blamed_on_the_work(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", a="x\n")
    yard.add("ann")
    fails = tmp_path / "fails"
    fails.touch()
    trouble = f"! rm {fails} 2>/dev/null || {{ echo bwrap: No space >&2; exit 1; }}"
    failing = f"case $* in *merge-tree*) {trouble}; esac"
    fake = tmp_path / "programs" / "bwrap"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\n{failing}\nexec {shutil.which("bwrap")} "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=os.pathsep)
    interrupted = yard.empty()["1"]
    assert (interrupted["state"], interrupted["kills"]) == ("checking", 1)
    assert yard.empty()["1"]["state"] == "merged"


def test_a_branch_that_moves_during_a_check_is_not_moved_back(project: Project) -> None:
    """Work that was checked on the former tip is merged and checked again on the new one."""
    yard = Yard(project, "ann", settings='[merge]\ncheck = "sleep 1"\n')
    yard.commit("ann", a="x\n")
    yard.add("ann")
    with yard.emptied():
        yard.wait("1", "checking")
        begun = yard.stored()["1"]["onto"]
        own = yard.git("commit-tree", "team/main^{tree}", "-p", "team/main", "-m", "mine")
        yard.git("update-ref", "refs/heads/team/main", own)
    assert "update_ref failed" in yard.stored()["1"]["why"]
    assert yard.empty()["1"]["state"] == "merged"
    assert yard.merges() == ["mine", "Merge team/ann: work"]
    assert (begun, yard.stored()["1"]["onto"]) == (yard.git("rev-parse", f"{own}^"), own)


def test_proven_work_whose_task_is_reopened_leaves_the_queue(project: Project) -> None:
    held = "until test -e go; do sleep 0.05; done"
    yard = Yard(project, "ann", "bob", settings=f'[merge]\ncheck = "{held}"\nauto = true\n')
    yard.commit("ann", a="x\n")
    yard.commit("bob", b="x\n")
    project.start()
    yard.add("bob")
    project.do("teamctl", "task", "add", "Work", "--check", "true", "--owner", "ann")
    project.do("teamctl", "task", "update", "1", "--status", "completed")
    wait_until(lambda: "2" in yard.stored(), what="it joins")
    tree = project.paths.checks / "queue" / "tree"
    wait_until((tree / "b.txt").exists, what="the check of what is before it begins")
    project.do("teamctl", "task", "update", "1", "--status", "in_progress", "--owner", "ann")
    (tree / "go").touch()
    wait_until(lambda: "2" not in yard.stored(), what="it has left")
    yard.wait("1", "merged")
    assert yard.merges() == ["Merge team/bob: work"]


def test_after_a_merge_the_base_of_a_copy_is_its_merged_work(project: Project) -> None:
    yard = Yard(project, "ann")
    tip = yard.commit("ann", a="x\n")
    yard.add("ann")
    assert yard.empty()["1"]["state"] == "merged"
    copy = json.loads((project.paths.work / "ann.json").read_bytes())
    assert copy["base"] == tip == yard.git("rev-parse", "refs/teamd/base/ann")
    assert project.do("teamctl", "diff", "ann") == ""


def test_a_branch_checked_out_in_a_folder_with_a_line_break_moves_with_its_files(
    project: Project, tmp_path: Path
) -> None:
    yard = Yard(project, "ann")
    tree = tmp_path / "two\nlines"
    yard.git("worktree", "add", "--quiet", "-b", "team/main", str(tree))
    yard.commit("ann", a="work\n")
    yard.add("ann")
    assert yard.empty()["1"]["state"] == "merged"
    assert (tree / "a.txt").read_text() == "work\n"
    assert git(tree, "status", "--porcelain") == ""


def test_an_entry_stays_open_until_the_base_of_its_copy_has_moved(project: Project) -> None:
    """Otherwise the copy would keep its old base for ever, if the base could not be moved then."""
    yard = Yard(project, "ann")
    work, copy = yard.commit("ann", a="left\n"), record.get(project.paths, "ann")
    entry = yard.add("ann")
    lock = yard.folder / f".git/refs/teamd/base/{copy.address}.lock"  # git cannot move the ref
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    assert yard.empty()[entry]["state"] != "merged"
    assert yard.merges() == ["Merge team/ann: work"]
    assert record.get(project.paths, "ann").base == copy.base
    lock.unlink()
    assert yard.empty()[entry]["state"] == "merged"
    assert record.get(project.paths, "ann").base == work


PUSHED = f'[merge]\ncheck = "{CHECK}"\npush = "origin"\n'
UNASKED = (
    "not pushed to origin: it has commits that teamd did not merge; `teamctl push team/main` "
    "pushes it from your terminal"
)


def add_remote(yard: Yard, bare: Path) -> None:
    git(bare.parent, "init", "-q", "--bare", str(bare))
    yard.git("remote", "add", "origin", str(bare))


def test_the_branch_is_pushed_after_each_merge_and_a_failed_push_is_reported(
    project: Project, tmp_path: Path
) -> None:
    yard, bare = Yard(project, "ann", "bob", settings=PUSHED), tmp_path / "bare.git"
    add_remote(yard, bare)
    yard.git("push", "-q", "origin", "main")
    yard.commit("ann", "left", a="left\n")
    entry = yard.add("ann")
    assert yard.empty()[entry]["why"] == ""
    first = yard.git("rev-parse", "team/main")
    assert git(bare, "rev-parse", "team/main") == first
    assert yard.git("rev-parse", "origin/team/main") == first

    hook = bare / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho closed today >&2\nexit 1\n")
    hook.chmod(0o755)
    yard.commit("bob", "more", b="more\n")
    entry = yard.add("bob")
    ended = yard.empty()[entry]
    assert ended["state"] == "merged"
    assert ended["why"] == (
        "not pushed to origin: origin refused the push to team/main: [remote rejected] "
        "(pre-receive hook declined); remote: closed today; `teamctl push team/main` pushes it "
        "from your terminal"
    )
    assert "team/main has bob's work, but was not pushed to origin: " in yard.heard("lead")
    assert git(bare, "rev-parse", "team/main") == first
    hook.unlink()
    file = project.paths.queue  # as if killed after the branch moved, and before the push
    file.write_text(file.read_text().replace('"merged"', '"checking"'))
    assert {one["state"] for one in yard.empty().values()} == {"merged"}
    assert git(bare, "rev-parse", "team/main") == yard.git("rev-parse", "team/main")

    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert merge_work(yard, "ann").startswith("not pushed to origin: origin refused the push")
    hook.unlink()
    assert merge_work(yard, "bob") == "", "it includes the merge before"
    assert git(bare, "rev-parse", "team/main") == yard.git("rev-parse", "team/main")


def merge_work(yard: Yard, name: str) -> str:
    """Let the queue merge work of a teammate; return what it says about that."""
    yard.commit(name, f"by {name}", **{name: f"{name}\n"})
    entry = yard.add(name)
    ended = yard.empty()[entry]
    assert ended["state"] == "merged"
    return str(ended["why"])


def move_branch_to_unchecked_commit(yard: Yard) -> None:
    """As a teammate in the shared folder can do it."""
    words = ("-p", "team/main", "-m", "never checked", "team/main^{tree}")
    yard.git("update-ref", "refs/heads/team/main", yard.git("commit-tree", *words))


def test_commits_that_teamd_did_not_merge_are_pushed_by_the_person_alone(
    project: Project, tmp_path: Path
) -> None:
    yard, bare = Yard(project, "ann", "bob", "cay", settings=PUSHED), tmp_path / "bare.git"
    add_remote(yard, bare)
    assert merge_work(yard, "ann") == UNASKED, "the remote lacks also the first commit"
    assert git(bare, "for-each-ref") == ""
    project.do("teamctl", "push", "team/main")
    assert merge_work(yard, "bob") == ""
    pushed = yard.git("rev-parse", "team/main")
    assert git(bare, "rev-parse", "team/main") == pushed
    move_branch_to_unchecked_commit(yard)
    for name in ("cay", "ann"):
        assert merge_work(yard, name) == UNASKED
        assert git(bare, "rev-parse", "team/main") == pushed
        assert f"team/main has {name}'s work, but was {UNASKED}" in yard.heard("lead")
    project.do("teamctl", "push", "team/main")
    assert merge_work(yard, "bob") == ""
    assert git(bare, "rev-parse", "team/main") == yard.git("rev-parse", "team/main")


def test_a_commit_on_top_of_a_merge_is_not_pushed_with_it(project: Project, tmp_path: Path) -> None:
    yard, bare = Yard(project, "ann", settings=PUSHED), tmp_path / "bare.git"
    add_remote(yard, bare)
    yard.git("push", "-q", "origin", "main")
    assert merge_work(yard, "ann") == ""
    merge = yard.git("rev-parse", "team/main")
    git(bare, "update-ref", "-d", "refs/heads/team/main")
    yard.git("fetch", "-q", "--prune", "origin")
    move_branch_to_unchecked_commit(yard)
    file = project.paths.queue  # as if killed after the branch moved, and before the push
    file.write_text(file.read_text().replace('"merged"', '"checking"'))
    assert yard.empty()["1"]["state"] == "merged"
    assert git(bare, "rev-parse", "team/main") == merge
