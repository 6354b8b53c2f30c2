"""A team moves along when its project's folder is renamed or moved.

If only the team directory is moved away, its processes end, and never touch its successor.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from teamd.files.paths import TeamPaths
from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until


@pytest.fixture
def new(project: Project) -> Iterator[Path]:
    """The new folder of the project; moved back at the end, where `project` makes its checks."""
    place = project.folder.with_name("renamed")
    yield place
    if place.exists():
        place.rename(project.folder)


def populated(project: Project) -> None:
    """A team with ann, whose conversation holds a secret to remember."""
    where = (("bash", {"command": "pwd -P"}), ("read_file", {"path": f"{project.folder}/notes"}))
    project.stage.play("ann", say("Noted."), use(*where), say("I see."))
    project.write("notes", "It is blue.")
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Remember: blue.", "--wait")
    project.wait_for("ann", "idle")


def assert_goes_on(project: Project, new: Path) -> None:
    """Check that ann answers, remembers and works in the new folder, and that errors name it."""
    sent = project.run("teamctl", "send", "ann", "Which colour was it?", "--wait", cwd=new)
    assert sent.status == 0, sent.stderr
    wait_until(lambda: len(project.asked("ann")) == 3, what="ann has answered")
    request = project.asked("ann", least=1)[-1]
    assert "Remember: blue." in str(request.body["messages"][0])
    inside, outside = request.asked.last_results
    assert inside.text.strip() == str(new)
    assert f"is outside the workspace {new}; " in outside.text
    assert not project.folder.exists(), "nothing was made where the folder was"


def assert_ends(project: Project, new: Path) -> None:
    """Check that teamd can be stopped there, and leaves nothing behind."""
    assert project.run("teamd", "stop", cwd=new).status == 0
    assert project.survivors() == {}


def test_a_team_that_was_moved_while_stopped_continues_in_the_new_folder(
    project: Project, new: Path
) -> None:
    populated(project)
    project.do("teamd", "stop")
    project.folder.rename(new)
    project.start_in(new)
    assert_goes_on(project, new)
    assert_ends(project, new)


@pytest.mark.slow
def test_a_team_that_was_moved_while_running_can_be_stopped_from_the_new_folder(
    project: Project, new: Path
) -> None:
    """Its teamd serves a path that no longer exists; the same commands reach it in the new folder.

    It is stopped by a signal meanwhile, since it ends as soon as anything wakes it.
    """
    populated(project)
    pid = project.supervisor
    os.kill(pid, signal.SIGSTOP)
    project.folder.rename(new)
    status = project.run("teamd", "status", "--json", cwd=new)
    os.kill(pid, signal.SIGCONT)
    assert json.loads(status.stdout)["pid"] == pid
    assert project.run("teamd", "restart", cwd=new).status == 0
    assert_goes_on(project, new)
    assert_ends(project, new)


def test_a_teamd_whose_team_was_moved_ends_when_it_next_wakes(project: Project, new: Path) -> None:
    """Mail in the new folder wakes it, and it sees that its own folder is gone."""
    populated(project)
    project.folder.rename(new)
    assert project.run("teamctl", "send", "ann", "Hello?", cwd=new).status == 0
    wait_until(lambda: project.survivors() == {}, timeout_seconds=40, what="teamd has ended")
    assert project.run("teamctl", "team", cwd=new).status == 0
    project.start_in(new)
    wait_until(lambda: len(project.asked("ann")) == 3, what="ann reads the mail")
    assert_ends(project, new)


def test_folders_of_a_running_team_may_be_replaced_or_removed(project: Project) -> None:
    """A copy in place of the inboxes is read at once, and logs continue in a new folder."""
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Remember: blue.", "--wait")
    project.wait_for("ann", "idle")
    old = project.paths.inboxes.with_name("old")
    project.paths.inboxes.rename(old)
    shutil.copytree(old, project.paths.inboxes)
    shutil.rmtree(project.paths.logs)
    project.do("teamctl", "send", "ann", "Hello?", "--wait", "--timeout", "15")
    project.do("teamctl", "shutdown", "ann", "--timeout", "15")
    assert project.log("teamd", "request")
    assert project.log("ann", "stops")


@pytest.fixture
def at_work(project: Project) -> Iterator[Project]:
    """A project whose alice runs a command that ends once a file `go` exists."""
    command = "touch begun; until [ -e go ]; do sleep 0.05; done; echo OLD-ALICE-RESULT"
    project.stage.play("alice", use(("bash", {"command": command})))
    supervisor = project.start()
    project.do("teamctl", "spawn", "alice", "coder", "first life")
    wait_until((project.folder / "begun").exists, what="alice is at work")
    yield project
    with suppress(ProcessLookupError):
        os.kill(supervisor, signal.SIGCONT)


def at_rest(pid: int) -> Callable[[], bool]:
    """Return a check whether a process has slept since the last check."""
    looks = [""]

    def look() -> bool:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
        looks.append(status)
        return looks[-2] == status and "sleeping" in status

    return look


def begin_anew(project: Project) -> None:
    """Start another team in the same place, with an alice of its own."""
    project.stage.play("alice", say("A new life."))
    project.start()
    project.do("teamctl", "spawn", "alice", "coder", "second life", "--wait")
    project.wait_for("alice", "idle")


def state_of(paths: TeamPaths) -> dict[Path, bytes]:
    """Return the contents of every file of a team."""
    return {path: path.read_bytes() for path in paths.root.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_team_whose_directory_was_moved_ends_before_another_can_start(
    at_work: Project,
) -> None:
    """`mv .team old; teamd start`: access goes by path, and the locks moved with the old files."""
    at_work.paths.root.rename(at_work.folder / "old")
    wait_until(lambda: at_work.survivors() == {}, timeout_seconds=15, what="all have ended")
    assert list(at_work.folder.glob(".team")) == []
    begin_anew(at_work)
    at_work.write("go", "")
    at_work.do("teamd", "stop")
    shutil.rmtree(at_work.paths.root)
    (at_work.folder / "old").rename(at_work.paths.root)
    at_work.stage.play("alice", say("I look at it again."))
    at_work.start()
    wait_until(lambda: len(at_work.asked("alice")) == 3, what="the old one goes on")
    (result,) = at_work.asked("alice", least=1)[-1].asked.last_results
    assert "teamd was stopped while this call was under way" in result.text


@pytest.mark.slow
def test_a_teammate_never_writes_into_another_teams_directory(at_work: Project) -> None:
    """Even if its supervisor cannot end it: here the supervisor is stopped by a signal."""
    former, alice = at_work.supervisor, at_work.member("alice")["pid"]
    wait_until(at_rest(former), what="her supervisor waits: what comes next is a round of its own")
    os.kill(former, signal.SIGSTOP)
    old = TeamPaths(at_work.folder / "old")
    at_work.paths.root.rename(old.root)
    begin_anew(at_work)
    before = state_of(at_work.paths)
    at_work.write("go", "")
    wait_until(lambda: alice not in at_work.survivors(), what="the old alice has ended")
    os.kill(former, signal.SIGCONT)
    wait_until(lambda: former not in at_work.survivors(), what="and her supervisor")
    assert state_of(at_work.paths) == before
    assert "the team directory was moved or replaced" in old.log("alice").read_text("utf-8")
    assert "the team directory is gone" in old.log("teamd").read_text("utf-8")
