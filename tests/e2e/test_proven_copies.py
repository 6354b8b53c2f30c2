"""A task is done only once it is proven: for a teammate in a copy, its commit alone is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Project
from tests.repositories import git, make_repository
from tests.strict.replies import say, use
from tests.waiting import wait_until

SETTINGS = '[tasks]\nprotect = ["tests/**"]\n'
CHECK = "cmp a.txt tests/expected.txt"
CLAIM = ("claim_task", {"task_id": "1"})
DONE = ("task_update", {"task_id": "1", "status": "completed"})


def write(path: str, text: str) -> tuple[str, dict[str, Any]]:
    return ("bash", {"command": f"printf '%s\\n' {text} > {path}"})


@pytest.fixture
def repository(project: Project) -> Path:
    """The project's folder in git, with a task on the board; teamd runs."""
    (project.folder / "tests").mkdir()
    project.write("team.toml", SETTINGS)
    made = make_repository(project.folder, **{"a": "one\n", "tests/expected": "yes\n"})
    project.start()
    project.do("teamctl", "task", "add", "Say yes", "--check", CHECK)
    return made


def task(project: Project) -> dict[str, Any]:
    """Return the task's file for polling; running the command in a loop would use a whole core."""
    found: dict[str, Any] = json.loads((project.paths.tasks / "1.json").read_bytes())
    return found


def spawn(project: Project) -> None:
    project.do("teamctl", "spawn", "ann", "coder", "Say yes.", "--worktree")


@pytest.mark.slow
def test_a_failed_check_in_a_copy_passes_after_the_fix(project: Project, repository: Path) -> None:
    """The person merges the proven commit."""
    project.stage.play(
        "ann",
        use(CLAIM, write("a.txt", "no"), DONE),
        say("Done."),
        use(write("a.txt", "yes"), DONE),
        say("Really done."),
    )
    spawn(project)
    wait_until(
        lambda: task(project)["status"] == "completed", timeout_seconds=60, what="it is proven"
    )
    first, second = task(project)["attempts"]
    assert (first["status"], second["status"], task(project)["proven"]) == (1, 0, True)
    (mail,) = (one for one in project.records("ann", "mail") if "failed" in json.dumps(one))
    assert "a.txt tests/expected.txt differ" in json.dumps(mail)
    assert (repository / "a.txt").read_text() == "one\n", "nothing of it is there yet"
    project.wait_for("ann", "idle", turns=4)
    assert "merged 2 commits of ann into main" in project.do("teamctl", "merge", "ann")
    assert (repository / "a.txt").read_text() == "yes\n"
    said = git(repository, "log", "--format=%an: %s", "-2", "HEAD^2")
    assert said == "ann: Say yes\nann: Say yes"
