"""Checks of tasks in working copies: the commits of the owner, with the person's tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from teamd.copies import clone, record
from tests.e2e.harness import Project
from tests.process.test_checks import checker, claim, shells, wait_judged
from tests.repositories import copy_project, git, make_repository
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


CHECK = "cmp a.txt tests/expected.txt"
SETTINGS = '[tasks]\nprotect = ["tests/**"]\n'


class Scene:
    """A project in git, in whose copies a.txt must become equal to tests/expected.txt.

    Attributes:
        name: the teammate that works.
        copy: its copy.
    """

    def __init__(
        self, project: Project, settings: str = SETTINGS, names: tuple[str, ...] = ("alice",)
    ) -> None:
        self.project = project
        copy_project(project.folder, *names, make=_make_expected)
        project.ask_no_service(settings)
        project.enlist(*names, worktree=True)
        self.turn_to(names[0])

    def turn_to(self, name: str) -> None:
        self.name, self.copy = name, record.get(self.project.paths, name)

    @property
    def folder(self) -> Path:
        return self.copy.folder

    def judge(self, check: str = CHECK) -> dict[str, Any]:
        """Check a claim, with a teamd that is started if necessary; return the attempt."""
        task = claim(self.project, check, "--owner", self.name)
        if not self.project.paths.supervisor.exists():
            self.project.start()
        judged = wait_judged(self.project, task)
        (attempt,) = judged["attempts"]
        assert (judged["status"] == "completed") == (attempt["status"] == 0 and not attempt["why"])
        assert not list(self.project.paths.checks.glob("[0-9]*[0-9]"))
        assert not list(self.project.paths.homes.glob("check.*"))
        return dict(attempt)


def _make_expected(folder: Path) -> None:
    (folder / "tests").mkdir(parents=True)
    make_repository(folder, **{"a": "one\n", "b": "two\n", "tests/expected": "yes\n"})


@pytest.fixture
def scene(project: Project) -> Scene:
    return Scene(project)


def mend(scene: Scene) -> None:
    (scene.folder / "a.txt").write_text("yes\n")


def test_uncommitted_work_is_committed_in_its_teammate_s_name_and_checked(scene: Scene) -> None:
    (scene.folder / "new.txt").write_text("new\n")
    assert scene.judge()["status"] == 1
    mend(scene)
    alone = f"test ! -e {scene.project.folder}/a.txt && test ! -e {scene.project.paths.inboxes}"
    assert scene.judge(f"{CHECK} && test -f new.txt && {alone}")["status"] == 0
    said = git(scene.folder, "log", "--format=%an <%ae> %s", f"{scene.copy.base}..team/alice")
    assert said == "alice <alice@default> Work\nalice <alice@default> Work"
    assert git(scene.folder, "show", "--stat", "--format=", "--name-only", "HEAD~1") == "new.txt"
    assert git(scene.folder, "status", "--porcelain") == ""
    assert sorted(one.name for one in scene.folder.iterdir()) == [
        ".git", "a.txt", "b.txt", "new.txt", "tests",
    ]  # fmt: skip


def test_editing_protected_files_does_not_make_a_check_pass(scene: Scene) -> None:
    (scene.folder / "tests/expected.txt").write_text("one\n")
    attempt = scene.judge()
    assert attempt["status"] == 1
    assert git(scene.folder, "show", "HEAD:tests/expected.txt") == "one"


def test_work_that_cannot_be_committed_does_not_pass_its_check(scene: Scene) -> None:
    mend(scene)
    make_repository(scene.folder / "lib")
    attempt = scene.judge()
    assert attempt["why"].endswith(
        "no commit holds the files of a repository of its own; move its .git away: lib"
    )
    shutil.rmtree(scene.folder / "lib/.git")
    os.mkfifo(scene.folder / "lib/.gitignore")
    assert scene.judge()["why"].endswith("lib/.gitignore is a pipe, and git reads it")
    (scene.folder / "lib/.gitignore").unlink()
    assert scene.judge()["status"] == 0


def off_its_branch(scene: Scene) -> None:
    git(scene.folder, "switch", "-qc", "other")


def in_a_conflict(scene: Scene) -> None:
    git(scene.folder, "switch", "-qc", "other")
    git(scene.folder, "commit", "-qam", "x", "--allow-empty")
    (scene.folder / "a.txt").write_text("other\n")
    git(scene.folder, "commit", "-qam", "other")
    git(scene.folder, "switch", "-q", f"team/{scene.name}")
    mend(scene)
    git(scene.folder, "commit", "-qam", "mine")
    git(scene.folder, "merge", "-q", "other", check=False)


def without_a_repository(scene: Scene) -> None:
    shutil.rmtree(scene.folder / ".git")


def with_another_repository(scene: Scene) -> None:
    """Link the repository to one of the person, which git must not read for the teammate."""
    other = make_repository(scene.project.root / f"private-{scene.name}", a="yes\n")
    git(other, "switch", "-qc", f"team/{scene.name}")
    shutil.rmtree(scene.folder / ".git")
    (scene.folder / ".git").symlink_to(other / ".git")


def with_objects_of_another(scene: Scene) -> None:
    other = make_repository(scene.project.root / f"private-{scene.name}", a="yes\n")
    commit = git(other, "rev-parse", "HEAD")
    shutil.rmtree(scene.folder / ".git/objects")
    (scene.folder / ".git/objects").symlink_to(other / ".git/objects")
    (scene.folder / ".git/refs/heads/team" / scene.name).write_text(f"{commit}\n")


def with_a_broken_branch(scene: Scene) -> None:
    (scene.folder / ".git/refs/heads/team" / scene.name).write_text("0" * 40 + "\n")


def without_its_objects(scene: Scene) -> None:
    git(scene.folder, "commit", "-qam", "mine")
    commit = git(scene.folder, "rev-parse", "HEAD^{tree}")
    (scene.folder / ".git/objects" / commit[:2] / commit[2:]).unlink()


def without_a_copy(scene: Scene) -> None:
    scene.folder.rename(scene.project.root / "elsewhere")


def with_a_damaged_record(scene: Scene) -> None:
    (scene.folder.parent / f"{scene.name}.json").write_text("{")


NO_WORK = "its work could not be committed: "
BROKEN: tuple[tuple[Callable[[Scene], None], str], ...] = (
    (off_its_branch, f"{NO_WORK}its copy is on other, and its work is what is on team/{{name}}"),
    (in_a_conflict, f"{NO_WORK}it has conflicts that are not resolved"),
    (without_a_repository, NO_WORK),
    (with_another_repository, NO_WORK),
    (with_objects_of_another, NO_WORK),
    (with_a_broken_branch, NO_WORK),
    (without_its_objects, "its "),
    (without_a_copy, "{name} has no working copy; `teamctl spawn {name} ROLE PROMPT --worktree"),
    (with_a_damaged_record, ""),
)


def test_a_copy_that_cannot_be_checked_fails_with_a_sentence(project: Project) -> None:
    """The teammate is informed, and the task does not hang."""
    names = tuple(f"t{number}" for number in range(len(BROKEN)))
    scene = Scene(project, names=names)
    for number, (breaks, why) in enumerate(BROKEN):
        scene.turn_to(names[number])
        mend(scene)
        breaks(scene)
        attempt = scene.judge()
        assert attempt["why"].startswith(why.format(name=scene.name)), attempt
        assert attempt["why"]
    for number, name in enumerate(names, start=1):
        told = f"The check of task {number} (Work) failed"
        mail = partial(everything, project, name)
        wait_until(lambda told=told, mail=mail: told in mail(), what=f"{name} has mail")  # type: ignore[misc]


def everything(project: Project, name: str) -> str:
    """Return a teammate's mail, read or not."""
    return project.mail(name) + json.dumps(project.records(name))


PLANTS = ("core.fsmonitor", "filter.x.clean", "filter.x.smudge", "diff.external", "diff.x.command")


def test_planted_code_does_not_run_in_any_process_of_the_person(scene: Scene) -> None:
    mark = scene.project.root / "it-ran"
    for name in PLANTS:
        git(scene.project.folder, "config", "--file", str(scene.folder / ".git/config"), name,
            f"touch {mark}; cat")  # fmt: skip
    (scene.folder / ".gitattributes").write_text("* filter=x diff=x\n")
    for hook in ("pre-commit", "post-commit", "post-index-change", "reference-transaction"):
        path = scene.folder / ".git/hooks" / hook
        path.parent.mkdir(exist_ok=True)
        # Inside the sandbox the hook cannot write the mark.
        path.write_text(f"#!/bin/sh\ntouch {mark}\nexit 0\n")
        path.chmod(0o755)
    mend(scene)
    assert scene.judge()["status"] == 0
    assert not mark.exists()


def test_a_commit_after_a_kill_is_not_blocked_by_a_stale_lock(scene: Scene) -> None:
    """A filter blocks git, and its checker is killed meanwhile."""
    config = str(scene.folder / ".git/config")
    held = "touch begun; test -e go || sleep 100; cat"
    git(scene.project.folder, "config", "--file", config, "filter.x.clean", held)
    (scene.folder / ".gitattributes").write_text("a.txt filter=x\n")
    mend(scene)
    scene.project.start()
    task = claim(scene.project, CHECK, "--owner", "alice")
    wait_until((scene.folder / "begun").exists, what="the filter runs")
    assert (scene.folder / ".git/index.lock").exists()
    (scene.folder / "go").touch()
    pid = checker(scene.project)
    assert pid is not None
    assert shells(pid)
    os.kill(pid, signal.SIGKILL)
    judged = wait_judged(scene.project, task)
    assert (judged["status"], len(judged["attempts"])) == ("completed", 1)
    assert not (scene.folder / ".git/index.lock").exists()
    assert not (scene.folder / ".git/teamd.commit").exists()
    tracked = git(scene.folder, "ls-files").splitlines()
    assert tracked == [".gitattributes", "a.txt", "b.txt", "begun", "go", "tests/expected.txt"]


def test_without_a_sandbox_the_check_runs_in_the_clone_but_git_in_a_sandbox(
    project: Project,
) -> None:
    scene = Scene(project, SETTINGS + '[tools]\nsandbox = "off"\n')
    mark = project.root / "it-ran"
    git(project.folder, "config", "--file", str(scene.folder / ".git/config"), "filter.x.clean",
        f"touch {mark}; cat")  # fmt: skip
    (scene.folder / ".gitattributes").write_text("* filter=x\n")
    mend(scene)
    assert scene.judge(f"pwd > {project.root}/where; {CHECK}")["status"] == 0
    assert (project.root / "where").read_text() == f"{project.paths.check_place('1')}/tree\n"
    assert not mark.exists()


def test_a_shallow_repository_can_be_checked(project: Project) -> None:
    (project.root / "deep/tests").mkdir(parents=True)
    deep = make_repository(project.root / "deep", **{"tests/expected": "yes\n"})
    for number in range(3):
        (deep / "a.txt").write_text(f"{number}\n")
        git(deep, "add", "a.txt")
        git(deep, "commit", "-qm", str(number))
    shutil.rmtree(project.folder)
    git(project.root, "clone", "-q", "--depth=1", f"file://{deep}", str(project.folder))
    project.ask_no_service(SETTINGS)
    project.enlist("alice", worktree=True)
    copy = clone.make_copy(project.paths, "alice", "default", project.folder).copy
    project.start()
    (copy.folder / "a.txt").write_text("yes\n")
    judged = wait_judged(project, claim(project, f"{CHECK} && git log", "--owner", "alice"))
    assert judged["status"] == "completed", judged
