"""No teammate ever works in a half-made copy, whichever process is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.harness import Project
from tests.repositories import git, make_repository
from tests.waiting import wait_until

# Before the commit is pinned; and in the sandbox, when half of the copy exists.
POINTS = ("update-ref -m teamd", "reset -q --hard")
SPAWN = ("teamctl", "spawn", "alice", "coder", "Go.", "--worktree")


class Brake:
    """A wrapper of git that stops at given words, in a sandbox as well."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._brake = folder / "brake"
        real = shutil.which("git")
        (folder / "git").write_text(f'#!/bin/sh\n. {self._brake}\nexec {real} "$@"\n')
        (folder / "git").chmod(0o755)
        self.release()

    def pull(self, words: str) -> None:
        """Stop calls that contain these words."""
        wait = f"while [ -s {self._brake} ]; do sleep 0.1; done"
        self._brake.write_text(f'case "$*" in *"{words}"*) {wait} ;; esac\n')

    def release(self) -> None:
        """Stop no further calls."""
        self._brake.write_text("")


@pytest.fixture
def repository(project: Project) -> Path:
    return make_repository(project.folder)


@pytest.fixture
def brake(project: Project, repository: Path) -> Brake:
    """A running team whose git can be stopped."""
    made = Brake(project.root / "bin")
    project.start()
    return made


def begin_spawn(project: Project, words: str) -> tuple[subprocess.Popen[str], int]:
    """Begin a spawn whose git stops at given words; return the command and git's pid."""
    pipe = subprocess.PIPE
    command = project.begin(*SPAWN, installed=True, stdout=pipe, stderr=pipe)
    wait_until(lambda: stopped_at(project, words), what=f"it stops at {words}")
    return command, int(project.log("teamd", "working copy begins")[-1]["pid"])


def stopped_at(project: Project, words: str) -> bool:
    return any(words in line for line in project.survivors().values() if "sh" in line)


def check_nothing_left(project: Project, repository: Path) -> None:
    assert project.member("alice") == {}
    assert [one.name for one in project.paths.work.iterdir()] in (["alice.lock"], [])
    assert git(repository, "for-each-ref", "refs/teamd") == ""


def check_whole(project: Project, repository: Path) -> None:
    """Check that alice works in a complete copy."""
    project.wait_for("alice", "idle", turns=1)
    copy = project.paths.copy("alice")
    assert git(copy, "status", "--porcelain", "--branch") == "## team/alice"
    left = {".git", "a.txt", "b.txt"}  # once the placeholders of its last command are gone
    wait_until(lambda: {one.name for one in copy.iterdir()} == left, what="nothing else is left")
    assert git(repository, "rev-parse", "refs/teamd/base/alice") == git(copy, "rev-parse", "HEAD")
    left = {one.name for one in project.paths.work.iterdir()}
    assert left == {"alice", "alice.json", "alice.lock"}


@pytest.mark.slow
@pytest.mark.parametrize("words", POINTS)
def test_a_killed_copy_process_leaves_nothing_behind(
    words: str, project: Project, repository: Path, brake: Brake
) -> None:
    brake.pull(words)
    command, maker = begin_spawn(project, words)
    again = project.run(*SPAWN)
    assert again.status == 1
    assert again.complaint == (
        "teamctl: a working copy for alice is being made; try again in a moment"
    )
    os.kill(maker, signal.SIGKILL)
    _, said = command.communicate(timeout=30)
    assert command.returncode == 1
    assert said == (
        "teamctl: alice was not spawned: no working copy was made: its process was killed by "
        "signal 9; `teamctl logs teamd` may say why\n"
    )
    brake.release()
    check_nothing_left(project, repository)
    project.do(*SPAWN)
    check_whole(project, repository)


@pytest.mark.slow
def test_after_the_supervisor_is_killed_the_next_spawn_makes_the_copy(
    project: Project, repository: Path, brake: Brake
) -> None:
    brake.pull(POINTS[1])
    command, maker = begin_spawn(project, POINTS[1])
    os.kill(project.supervisor, signal.SIGKILL)
    command.communicate(timeout=30)
    assert command.returncode == 3
    wait_until(lambda: maker not in project.survivors(), what="the maker ends with its supervisor")
    brake.release()
    project.start()
    assert project.member("alice") == {}
    project.do(*SPAWN)
    check_whole(project, repository)


@pytest.mark.slow
def test_teamd_can_stop_while_a_copy_is_made(
    project: Project, repository: Path, brake: Brake
) -> None:
    brake.pull(POINTS[1])
    command, _ = begin_spawn(project, POINTS[1])
    project.do("teamd", "stop", "--timeout", "5")
    _, said = command.communicate(timeout=30)
    assert command.returncode == 1
    assert said == (
        "teamctl: alice was not spawned: teamd was stopped; start it, and spawn it again\n"
    )
    check_nothing_left(project, repository)


@pytest.mark.slow
def test_a_teammate_that_gets_a_copy_while_teamd_stops_ends_with_it(
    project: Project, repository: Path, brake: Brake
) -> None:
    """Otherwise it would start after all others have ended, and delay the stop to its deadline."""
    brake.pull(POINTS[1])
    command, maker = begin_spawn(project, POINTS[1])
    supervisor = project.supervisor
    os.kill(supervisor, signal.SIGSTOP)
    brake.release()
    wait_until(lambda: _is_zombie(maker), what="the copy is made")
    os.kill(supervisor, signal.SIGTERM)
    os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: supervisor not in project.survivors(), what="teamd has stopped")
    command.communicate(timeout=30)
    assert len(project.log("teamd", "stopping")) == 1
    project.start()
    check_whole(project, repository)


@pytest.mark.slow
def test_a_declared_teammate_gets_its_copy_after_a_kill(project: Project, repository: Path) -> None:
    brake = Brake(project.root / "bin")
    mate = '[[teammate]]\nname = "alice"\nrole = "coder"\nprompt = "Go."\nworktree = true\n'
    project.write("team.toml", mate)
    git(repository, "add", "-A")
    brake.pull(POINTS[1])
    project.start()
    wait_until(lambda: stopped_at(project, POINTS[1]), what="it stops")
    os.kill(project.supervisor, signal.SIGKILL)
    wait_until(lambda: not stopped_at(project, POINTS[1]), what="the maker ends")
    brake.release()
    project.start()
    check_whole(project, repository)


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
