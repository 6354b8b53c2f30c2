"""Git in a workspace whose repository is outside of it behaves as the warning says."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.files.paths import TeamPaths
from teamd.sandbox.build import build_shell
from teamd.sandbox.git_repository import explain_git, linked_repository
from teamd.sandbox.probe import probe
from teamd.settings.schema import Settings, TeamSettings, ToolSettings
from teamd.tools import Toolbox
from teamd.tools.shell import Bash
from tests.e2e.harness import Project
from tests.repositories import git, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


@pytest.fixture
def linked(repository: Path) -> Path:
    """A linked working tree beside its repository."""
    git(repository, "worktree", "add", "-q", "-b", "side", "../linked")
    return repository.parent / "linked"


def run(workspace: Path, command: str) -> str:
    """Run a command as a teammate in that workspace; return the model's view of the result."""
    paths = TeamPaths(workspace / ".team")
    paths.create()
    settings = replace(Settings(), team=TeamSettings(workspace=workspace))
    shell = build_shell(paths, "ann", settings, "coder", probe())
    bash = Bash(shell=shell, timeout_seconds=20, output_bytes=4000)
    return asyncio.run(Toolbox([bash]).run("bash", {"command": command})).text


def test_git_reads_the_repository_of_a_linked_working_tree(linked: Path) -> None:
    said = run(linked, "echo mine >>a.txt; git status --short; git diff; git log --format=%s")
    assert said.split("\n")[0] == " M a.txt"
    assert "+mine" in said
    assert said.endswith("first")


def test_git_changes_nothing_in_a_linked_working_tree(linked: Path) -> None:
    (linked / "a.txt").write_text("mine\n")
    head = git(linked, "rev-parse", "HEAD")
    changes = ("commit -am x", "stash", "checkout -q HEAD~0", "reset --hard", "checkout -- a.txt",
               "add b.txt")  # fmt: skip
    said = run(linked, "; ".join(f"git {change} && echo changed" for change in changes))
    assert "changed" not in said
    assert git(linked, "status", "--short", "-b") == "## side\n M a.txt"
    assert git(linked, "rev-parse", "HEAD") == head


def test_the_rest_of_the_person_s_folder_stays_hidden(linked: Path, repository: Path) -> None:
    said = run(linked, f"ls -A {repository}; touch {repository}/.git/hooks/pre-commit")
    assert said.split("\n")[0] == ".git"
    assert "Read-only file system" in said


def test_a_forged_git_file_reveals_no_repository(tmp_path: Path, linked: Path) -> None:
    """A command could create such a file."""
    own = linked.parent / "repository/.git/worktrees/linked"
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {own}\n")
    assert linked_repository(other) is None
    assert "not a git repository" in run(other, "git log")
    assert linked_repository(linked) == own.parent.parent
    (own / "commondir").write_text(f"{tmp_path}\n")
    assert linked_repository(linked) is None


def test_a_repository_whose_folder_holds_other_files_stays_hidden(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare"
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(bare))
    for where in ("bare/inside", "beside"):
        git(bare, "worktree", "add", "-q", "--detach", str(tmp_path / where))
    assert linked_repository(bare / "inside") is None
    assert linked_repository(tmp_path / "beside") == bare
    monkeypatch.setenv("HOME", str(bare))
    assert linked_repository(tmp_path / "beside") is None


def test_a_linked_working_tree_is_explained(linked: Path, repository: Path) -> None:
    assert explain_git(ToolSettings(), linked) == (
        f"a teammate in {linked} can read its git history and not commit, since its repository "
        f"{repository}/.git lies outside; spawn it with --worktree, and it commits in a copy of "
        "its own"
    )
    assert explain_git(ToolSettings(sandbox="off"), linked) == ""


def test_a_folder_in_a_repository_is_explained(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository / "inner/most"
    folder.mkdir(parents=True)
    assert "not a git repository" in run(folder, "git status")
    assert explain_git(ToolSettings(), folder) == (
        f"git does not work for a teammate in {folder}, which is a folder in the repository "
        f'{repository}; set [team] workspace = "../.." in team.toml'
    )
    monkeypatch.setenv("HOME", str(repository))
    assert explain_git(ToolSettings(), folder) == "", "settings of a home may be kept in git"


def test_a_submodule_is_explained(repository: Path, tmp_path: Path) -> None:
    outer = make_repository(tmp_path / "outer", c="three\n")
    allowed = ("-c", "protocol.file.allow=always")
    git(outer, *allowed, "submodule", "add", "-q", str(repository), "lib")
    assert explain_git(ToolSettings(), outer) == ""
    assert explain_git(ToolSettings(), outer / "lib") == (
        f"git does not work for a teammate in {outer}/lib, since its repository "
        f"{outer}/.git/modules/lib lies outside; spawn it with --worktree, and it commits in a "
        "copy of its own"
    )


def test_a_folder_without_a_repository_is_not_explained(tmp_path: Path) -> None:
    assert explain_git(ToolSettings(), tmp_path) == ""
    os.mkfifo(tmp_path / ".git")
    assert explain_git(ToolSettings(), tmp_path) == ""


@pytest.mark.slow
def test_start_spawn_and_doctor_give_the_explanation_and_continue(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.environment["HOME"] = str(tmp_path_factory.mktemp("home"))
    top = make_repository(project.folder.parent)
    project.ask_no_service()
    sentence = (
        f"git does not work for a teammate in {project.folder}, which is a folder in the "
        f'repository {top}; set [team] workspace = ".." in team.toml\n'
    )
    started = project.run("teamd", "start")
    assert (started.status, started.stderr) == (0, f"teamd: {sentence}")
    spawned = project.run("teamctl", "spawn", "ann", "coder", "Wait.")
    assert (spawned.status, spawned.stderr) == (0, f"warning: {sentence}")
    what, _, remedy = sentence.partition("; ")
    assert f"note  {what}\n      {remedy}" in project.run("teamctl", "doctor").stdout
