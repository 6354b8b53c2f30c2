"""`teamctl prune` removes unneeded files, and no others."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from tests.e2e.harness import Project
from tests.shells import links
from tests.waiting import wait_until


def left(path: Path, *, days: float = 0, size: int = 1000) -> Path:
    path.write_bytes(b"x" * size)
    then = time.time() - days * 86_400
    os.utime(path, (then, then))
    return path


def furnish(project: Project) -> tuple[set[Path], set[Path]]:
    """Write files of ann, of the person, and of names that are no longer in the team.

    Returns:
        The files that must stay, and those that may be removed.
    """
    project.enlist("Ann")
    paths = project.paths
    stay = {
        left(path, days=99)
        for path in (
            paths.log("Ann"),
            paths.log("ann"),  # case-insensitive, as names are
            paths.log("teamd"),
            paths.log("lead"),
            paths.logs / "teamd.stderr",
            paths.logs / "notes.txt",
            paths.logs / "old.log.bak",
            paths.transcript("Ann"),
            paths.transcript("user"),
            paths.transcript("lead"),
            paths.transcripts / "old.jsonl.bak",
            paths.inbox("old"),
            paths.rejected("old"),
        )
    }
    for name in ("Ann", "old"):
        paths.jobs(name).mkdir(parents=True)
    stay.add(left(paths.jobs("Ann") / "1.out", days=99))
    stay |= {left(paths.replies / "new.json"), left(paths.inboxes / ".teamd-new.tmp")}
    go = {
        left(path, days=2)
        for path in (
            paths.log("old"),
            paths.logs / "old.log.1",
            paths.logs / "Ann.log.1",
            paths.logs / "Ann.log.12",
            paths.logs / "teamd.log.3",
            paths.transcript("old"),
            paths.jobs("old") / "1.json",
            paths.replies / "1.json",
            paths.root / ".teamd-1.tmp",
            paths.inboxes / ".teamd-2.tmp",
        )
    }
    return stay, go


def test_rotated_orphaned_and_temporary_files_are_removed_and_reported(project: Project) -> None:
    stay, go = furnish(project)
    told = project.do("teamctl", "prune", "--dry-run").splitlines()
    root = project.paths.root
    assert sorted(told[:-1]) == sorted(f"would remove {p.relative_to(root)} (1.0kB)" for p in go)
    assert told[-1] == "would remove 10 files, 10.0kB in all"
    assert all(path.exists() for path in stay | go)

    done = project.do("teamctl", "prune").splitlines()
    assert done == [line.replace("would remove", "removed") for line in told]
    assert all(path.exists() for path in stay)
    assert not any(path.exists() for path in go)
    assert project.do("teamctl", "prune") == "nothing to remove\n"


def test_a_single_kind_of_file_can_be_chosen(project: Project) -> None:
    stay, go = furnish(project)
    project.do("teamctl", "prune", "--transcripts")
    assert {path for path in go if not path.exists()} == {project.paths.transcript("old")}
    project.do("teamctl", "prune", "--logs")
    rest = {path for path in go if path.exists()}
    assert {path.suffix for path in rest} == {".json", ".tmp"}
    project.do("teamctl", "prune", "--logs", "--transcripts")
    assert {path for path in go if path.exists()} == rest
    assert all(path.exists() for path in stay)


def test_files_younger_than_the_given_number_of_days_are_kept(project: Project) -> None:
    _, go = furnish(project)
    young = left(project.paths.transcript("young"), days=0.9)
    assert project.do("teamctl", "prune", "--older-than", "3") == "nothing to remove\n"
    told = project.do("teamctl", "prune", "--older-than", "1.5")
    assert told.endswith("removed 10 files, 10.0kB in all\n")
    assert not any(path.exists() for path in go)
    assert project.do("teamctl", "prune", "--older-than", "0").splitlines() == [
        "removed transcripts/young.jsonl (1.0kB)",
        "removed 1 file, 1.0kB in all",
    ]
    assert not young.exists()
    misused = project.run("teamctl", "prune", "--older-than", "-1")
    assert misused.status == 2


def test_without_a_roster_nothing_is_removed(project: Project) -> None:
    """Without a roster, it would remove every conversation."""
    stay, go = furnish(project)
    for content, sentence in (
        (None, f"there is no roster {project.paths.config}, so the files to keep are unknown"),
        ("{", "config.json is damaged"),
    ):
        project.paths.config.unlink()
        if content is not None:
            project.paths.config.write_text(content)
        refused = project.run("teamctl", "prune")
        assert (refused.status, refused.stdout) == (1, "")
        assert sentence in refused.complaint
        project.paths.config.touch()
    assert all(path.exists() for path in stay | go)


def test_no_teammate_joins_the_team_while_it_is_pruned(project: Project) -> None:
    """Otherwise prune could remove the conversation of a teammate that is being spawned again."""
    furnish(project)
    with project.paths.config_lock.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pruning = project.begin("teamctl", "prune")
        wait_until(
            lambda: project.paths.config_lock in links(pruning.pid).values(), what="it waits"
        )
        project.enlist("Ann", "old")
    assert pruning.wait(30) == 0
    assert project.paths.transcript("old").exists()
    assert project.paths.log("old").exists()
    assert not (project.paths.logs / "old.log.1").exists()


def test_a_start_removes_leftovers_of_a_kill(project: Project) -> None:
    project.paths.create()
    old = left(project.paths.inboxes / ".teamd-0123.tmp", days=1)
    young = left(project.paths.inboxes / ".teamd-4567.tmp")
    project.start()
    assert not old.exists()
    assert young.exists()
    assert project.log("teamd", "swept")[0]["files"] == [str(old)]
