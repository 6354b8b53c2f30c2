"""The merge queue from a team's view: a conflict, a failed check, and second tries."""

from __future__ import annotations

import json

import pytest

from tests.e2e.harness import Project
from tests.repositories import git, make_repository
from tests.strict.replies import say, use
from tests.waiting import wait_until

SETTINGS = """\
[team]
worktree = true
[merge]
check = "! grep -q bad a.txt || { echo a.txt is bad; exit 1; }"
auto = true
"""


def work(task: str, *commands: str) -> tuple[tuple[str, dict[str, str]], ...]:
    """Run commands, and report a task as done."""
    done = ("task_update", {"task_id": task, "status": "completed"})
    return (*(("bash", {"command": command}) for command in commands), done)


def states(project: Project) -> list[tuple[str, str]]:
    """Read the queue's file; polling the command would use a whole core."""
    file = project.paths.queue
    there = json.loads(file.read_bytes())["queue"] if file.exists() else []
    return [(entry["teammate"], entry["state"]) for entry in there]


def wait_merged(project: Project, count: int) -> None:
    """Wait until this many entries are merged."""
    wait_until(
        lambda: [state for _, state in states(project)].count("merged") == count,
        timeout_seconds=60,
        what=f"{count} are merged",
    )


@pytest.mark.slow
def test_teammates_hear_of_failed_merges_and_fix_them_in_their_copies(project: Project) -> None:
    make_repository(project.folder)
    project.write("team.toml", SETTINGS)
    project.start()
    for name in ("alice", "bob"):
        project.do("teamctl", "spawn", name, "coder", "Wait for your task.", "--wait")
    solve = (
        "git merge origin/team/main || { printf 'alice\\nbob\\n' > a.txt; "
        "git commit -qam 'both of us'; }"
    )
    project.stage.play(
        "alice",
        use(*work("1", "echo bad > a.txt", "git commit -qam 'by alice'")),
        say("Done."),
        use(*work("1", "echo alice > a.txt", "git commit -qam 'no bad one'")),
        say("Mended."),
    )
    project.stage.play(
        "bob",
        use(*work("2", "echo bob > a.txt", "git commit -qam 'by bob'")),
        say("Done."),
        use(*work("2", solve)),
        say("Solved."),
    )
    for number, name in enumerate(("alice", "bob"), start=1):
        project.do("teamctl", "task", "add", "Write", "--check", "true", "--owner", name)
        wait_merged(project, number)
    shown = json.loads(project.do("teamctl", "queue", "--json"))["queue"]
    assert [(entry["teammate"], entry["state"]) for entry in shown] == [
        ("alice", "failed"),
        ("alice", "merged"),
        ("bob", "conflict"),
        ("bob", "merged"),
    ]
    assert git(project.folder, "show", "team/main:a.txt") == "alice\nbob"
    tasks = json.loads(project.do("teamctl", "tasks", "--json"))["tasks"]
    assert [(task["status"], task["proven"]) for task in tasks] == [("completed", True)] * 2
    shown = project.do("teamctl", "queue")
    assert "conflicts in a.txt" in shown
    assert "bob" in shown
