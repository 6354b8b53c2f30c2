"""Commits that bypass the sandbox enter no branch, and nothing in them ever runs.

A teammate controls the index of its copy, so its commits can contain files that no command may
write.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from teamd.copies.merge import merge
from teamd.copies.source import GitKilled
from teamd.errors import TeamError
from tests.e2e.harness import Project
from tests.queues import Yard
from tests.repositories import commit, git
from tests.waiting import wait_until

ONTO_MAIN: Final = '[merge]\ninto = "main"\ncheck = "true"\n'
LINK, SCRIPT, FILE = "120000", "100755", "100644"
PLANTS: Final = {
    ".team": LINK,
    ".Team/inbox/teamd.jsonl": FILE,
    ".teams": LINK,
    ".githooks/post-merge": SCRIPT,
    ".husky/pre-commit": SCRIPT,
    "tools/hooks/pre-commit": SCRIPT,
    "tools": LINK,
    "AGENTS.md": FILE,
    ".lfsconfig": FILE,
    "deploy/key": FILE,
}


def plant(copy: Path, path: str, mode: str) -> None:
    """Commit a file that no sandboxed command may write, but that git can commit without a file."""
    argv = ["git", "-C", str(copy), "hash-object", "-w", "--stdin"]
    made = subprocess.run(argv, input="planted\n", text=True, capture_output=True, check=True)
    git(copy, "update-index", "--add", "--cacheinfo", f"{mode},{made.stdout.strip()},{path}")
    git(copy, "commit", "--quiet", "-m", f"plant {path}")
    git(copy, "checkout-index", "--force", path)


def follow(yard: Yard, name: str) -> Path:
    """Bring a copy to the person's commit, and make that its base."""
    copy = yard.copy(name)
    git(copy, "fetch", "--quiet", str(yard.folder), "main")
    git(copy, "reset", "--quiet", "--hard", "FETCH_HEAD")
    yard.project.do("teamctl", "merge", name)
    return copy


def refusal(path: str) -> str:
    return (
        f"ann's work changes {path}, which no teammate may change; have it remove that from its "
        "commits, and make the change yourself if you want it"
    )


def test_a_merge_refuses_changes_to_protected_paths(project: Project) -> None:
    yard = Yard(project, "ann", settings=f'{ONTO_MAIN}[tools]\nprotect = ["deploy"]\n')
    git(yard.folder, "config", "core.hooksPath", "tools/hooks")
    before, copy = yard.git("rev-parse", "main"), yard.copy("ann")
    for path, mode in PLANTS.items():
        plant(copy, path, mode)
        with pytest.raises(TeamError) as refused:
            merge(project.paths, "ann", yard.settings)
        assert str(refused.value) == refusal(path)
        assert yard.git("rev-parse", "main") == before
        assert not os.path.lexists(yard.folder / path) or path.casefold() == ".team"
        git(copy, "reset", "--quiet", "--hard", "HEAD~1")
    assert project.paths.config.is_file()


def test_each_command_that_accepts_work_refuses_changes_to_protected_paths(
    project: Project,
) -> None:
    yard = Yard(project, "ann", settings=ONTO_MAIN)
    plant(yard.copy("ann"), "AGENTS.md", FILE)
    for command in (("merge", "ann"), ("merge", "ann", "--squash"), ("queue", "add", "ann")):
        refused = project.run("teamctl", *command)
        assert refused.status == 1
        assert refused.complaint == f"teamctl: {refusal('AGENTS.md')}"
    assert yard.merges("main") == []
    assert not (yard.folder / "AGENTS.md").exists()


@pytest.mark.slow
def test_work_that_reverts_a_protected_change_is_merged_without_its_history(
    project: Project,
) -> None:
    """The person's `git bisect` would check out the commit with the hook and run it."""
    yard = Yard(project, "ann", settings=ONTO_MAIN)
    copy = yard.copy("ann")
    plant(copy, ".githooks/post-merge", SCRIPT)
    git(copy, "rm", "--quiet", ".githooks/post-merge")
    yard.commit("ann", a="work\n")
    for command in (("merge", "ann"), ("queue", "add", "ann")):
        said = project.run("teamctl", *command).complaint
        assert said.startswith(
            "teamctl: ann's history changes .githooks/post-merge, which no teammate may change; "
            "`teamctl merge ann --squash` takes the work without its history, or have it run `git"
        )
    project.do("teamctl", "merge", "ann", "--squash")
    assert (yard.folder / "a.txt").read_text() == "work\n"


@pytest.mark.slow
def test_a_change_that_a_rename_moves_to_a_protected_path_is_refused(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge follows renamed files, so the work itself does not name the protected path."""
    yard = Yard(project, "ann")
    text = "".join(f"line {number}\n" for number in range(20))
    commit(yard.folder, "hook", hook=text)
    copy = follow(yard, "ann")
    (yard.folder / ".githooks").mkdir()
    yard.git("mv", "hook.txt", ".githooks/pre-commit")
    moved = commit(yard.folder, "moved")
    (copy / "hook.txt").write_text(text.replace("line 9\n", "planted\n"))
    git(copy, "commit", "--quiet", "-am", "innocent")
    with pytest.raises(TeamError) as refused:
        merge(project.paths, "ann", yard.settings)
    assert str(refused.value) == refusal(".githooks/pre-commit")
    killed = tmp_path / "killed" / "git"
    killed.parent.mkdir()
    killing = "case $* in *merge-tree*) kill -KILL $$; esac"
    killed.write_text(f'#!/bin/sh\n{killing}\nexec {shutil.which("git")} "$@"\n')
    killed.chmod(0o755)
    monkeypatch.setenv("PATH", str(killed.parent), prepend=os.pathsep)
    with pytest.raises(GitKilled, match="git merge-tree was killed"):
        merge(project.paths, "ann", yard.settings)
    assert yard.git("rev-parse", "HEAD") == moved


@pytest.mark.slow
def test_work_whose_path_became_protected_after_it_was_queued_is_not_merged(
    project: Project,
) -> None:
    yard = Yard(project, "ann", settings=ONTO_MAIN)
    plant(yard.copy("ann"), "deploy/key", FILE)
    yard.add("ann")
    project.ask_no_service(f'{ONTO_MAIN}[tools]\nprotect = ["deploy"]\n')
    failed = yard.empty()["1"]
    assert failed["state"] == "failed"
    assert failed["why"].startswith("ann's work changes deploy/key, which no teammate may change")
    assert "ann's work changes deploy/key" in yard.heard("ann")
    assert yard.merges("main") == []


@pytest.mark.slow
@pytest.mark.parametrize("by", ["merge", "queue"])
@pytest.mark.parametrize("there", ["file", "folder"])
def test_an_ignored_file_of_the_person_is_never_overwritten(
    project: Project, by: str, there: str
) -> None:
    yard = Yard(project, "ann", settings=ONTO_MAIN)
    commit(yard.folder, "ignore")
    (yard.folder / ".git" / "info" / "exclude").write_text(".env\n")
    own = yard.folder / ".env"
    if there == "folder":
        own.mkdir()
        own /= "key"
    own.write_text("the only one\n")
    plant(yard.copy("ann"), ".env", FILE)
    named = own.relative_to(yard.folder)
    why = (
        f"it would replace files of yours in {yard.folder} that are not committed: "
        f"{named}; move them away"
    )
    if by == "merge":
        refused = project.run("teamctl", "merge", "ann")
        assert (refused.status, refused.complaint) == (1, f"teamctl: {why}")
    else:
        yard.add("ann")
        assert yard.empty()["1"]["why"] == why
    assert own.read_text() == "the only one\n"


def weave(yard: Yard, copy: Path, base: str) -> None:
    """Commit a merge of two landed histories; one of them weakened the test and restored it."""
    honest = yard.commit("ann", e="e\n")
    entry = yard.add("ann")
    assert yard.empty()[entry]["state"] == "merged"
    git(copy, "reset", "--quiet", "--hard", base)
    (copy / "tests" / "run.sh").write_text("exit 0\n")
    weak = yard.commit("ann", "weak", c="c\n")
    git(copy, "checkout", "--quiet", base, "--", "tests")
    yard.commit("ann", "restored")
    entry = yard.add("ann")
    assert yard.empty()[entry]["state"] == "merged"
    git(copy, "reset", "--quiet", "--hard", weak)
    (copy / "e.txt").write_text("e\n")
    git(copy, "add", "--all")
    tree = git(copy, "write-tree")
    both = git(copy, "commit-tree", tree, "-p", honest, "-p", weak, "-m", "both")
    git(copy, "reset", "--quiet", "--hard", both)


@pytest.mark.slow
def test_a_weakened_test_is_never_used_by_later_checks(project: Project) -> None:
    rules = '[tasks]\ncheck = "sh tests/run.sh"\nprotect = ["./tests/**"]\n[merge]\n'
    yard = Yard(project, "ann", settings=rules)
    test = yard.folder / "tests" / "run.sh"
    test.parent.mkdir()
    test.write_text("test -f good.txt || ! test -f claim.txt\n")
    git(yard.folder, "add", "tests")
    git(yard.folder, "commit", "--quiet", "-m", "tests")
    copy = follow(yard, "ann")
    base = git(copy, "rev-parse", "HEAD")
    weave(yard, copy, base)
    entry = yard.add("ann")
    assert yard.empty()[entry]["state"] in ("merged", "failed")
    assert yard.git("show", "team/main:tests/run.sh") == test.read_text().strip()
    yard.commit("ann", claim="I did it\n")
    project.start()
    project.do("teamctl", "task", "add", "Make good.txt", "--owner", "ann")
    project.do("teamctl", "task", "update", "1", "--status", "completed")

    def status() -> str:
        return str(json.loads((project.paths.tasks / "1.json").read_bytes())["status"])

    wait_until(lambda: status() != "checking", what="it is judged")
    shown = json.loads(project.do("teamctl", "task", "show", "1", "--json"))
    assert (shown["status"], shown["proven"]) == ("in_progress", False)


@pytest.mark.slow
def test_a_task_s_own_check_does_not_admit_work_to_the_queue(project: Project) -> None:
    """The teammate that created the task may have chosen the check."""
    yard = Yard(project, "ann", settings="[merge]\nauto = true\n")
    yard.commit("ann", a="broken\n")
    project.start()
    project.do("teamctl", "task", "add", "x", "--check", "true", "--owner", "ann")
    project.do("teamctl", "task", "update", "1", "--status", "completed")
    wait_until(lambda: "the queue has no check" in yard.heard("ann"), what="ann is told")
    assert yard.stored() == {}
    task = json.loads(project.do("teamctl", "task", "show", "1", "--json"))
    assert task["attempts"][0]["why"] == (
        "it passed, but cannot join the merge queue: the queue has no check, and merges nothing "
        "without one; set [merge] check in team.toml to a command such as 'pytest -q'"
    )


def test_a_protected_file_that_the_person_changed_in_the_base_is_not_the_teammates(
    project: Project,
) -> None:
    """The branch of the queue may lack the person's commits that a copy began with."""
    yard = Yard(project, "ann", settings='[merge]\ncheck = "true"\n')
    yard.commit("ann", "first", a="one\n")
    yard.add("ann")
    assert [one["state"] for one in yard.empty().values()] == ["merged"]
    for text in ("Mine.\n", "Newer.\n"):
        (yard.folder / "AGENTS.md").write_text(text)
        git(yard.folder, "add", "AGENTS.md")
        git(yard.folder, "commit", "--quiet", "-m", "mine")
    copy = follow(yard, "ann")
    yard.commit("ann", "second", b="two\n")
    yard.add("ann")
    assert [one["state"] for one in yard.empty().values()] == ["merged", "merged"]
    assert yard.git("show", "team/main:AGENTS.md") == "Newer."
    git(copy, "checkout", "--quiet", "HEAD~2", "--", "AGENTS.md")
    git(copy, "commit", "--quiet", "-m", "take the person's change back")
    with pytest.raises(TeamError) as refused:
        yard.add("ann")
    assert str(refused.value) == refusal("AGENTS.md")
