"""A project's folder that is renamed or moved: its team goes along."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.strict.replies import say, use
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.harness import Project


@pytest.fixture
def new(project: Project) -> Iterator[Path]:
    """Where a test moves the folder to; put back, for the end of `project` looks there."""
    place = project.folder.with_name("renamed")
    yield place
    if place.exists():
        place.rename(project.folder)


def populated(project: Project) -> None:
    """A team of ann, who has something to remember."""
    where = (("bash", {"command": "pwd -P"}), ("read_file", {"path": f"{project.folder}/notes"}))
    project.stage.play("ann", say("Noted."), use(*where), say("I see."))
    project.write("notes", "It is blue.")
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Remember: blue.", "--wait")
    project.wait_for("ann", "idle")


def assert_goes_on(project: Project, new: Path) -> None:
    """Ann answers there, remembers, works there, and is told where that is by what fails."""
    sent = project.run("teamctl", "send", "ann", "Which colour was it?", "--wait", cwd=new)
    assert sent.status == 0, sent.stderr
    wait_until(lambda: len(project.asked("ann")) == 3, what="ann has answered")
    request = project.asked("ann")[-1]
    assert "Remember: blue." in str(request.body["messages"][0])
    inside, outside = request.asked.last_results
    assert inside.text.strip() == str(new)
    assert f"is outside the workspace {new}; " in outside.text
    assert not project.folder.exists(), "nothing was made where the folder was"


def assert_ends(project: Project, new: Path) -> None:
    """It can be stopped there, and leaves nothing."""
    assert project.run("teamd", "stop", cwd=new).status == 0
    assert project.survivors() == {}


def test_a_team_that_was_moved_while_nothing_ran_goes_on_there(project: Project, new: Path) -> None:
    populated(project)
    project.do("teamd", "stop")
    project.folder.rename(new)
    assert project.run("teamd", "start", cwd=new).status == 0
    assert_goes_on(project, new)
    assert_ends(project, new)


def test_a_team_that_was_moved_while_it_ran_is_stopped_from_there(
    project: Project, new: Path
) -> None:
    """Its teamd serves a place that is no more; in the new one the same commands reach it."""
    populated(project)
    pid = project.supervisor
    project.folder.rename(new)
    status = project.run("teamd", "status", "--json", cwd=new)
    assert json.loads(status.stdout)["pid"] == pid
    assert project.run("teamd", "restart", cwd=new).status == 0
    assert_goes_on(project, new)
    assert_ends(project, new)


def test_a_teamd_whose_team_was_moved_ends_when_it_is_needed(project: Project, new: Path) -> None:
    """Mail in the new place wakes it, and it sees that it has nothing to do with that any more."""
    populated(project)
    project.folder.rename(new)
    assert project.run("teamctl", "send", "ann", "Hello?", cwd=new).status == 0
    wait_until(lambda: project.survivors() == {}, timeout_seconds=40, what="teamd has ended")
    assert project.run("teamctl", "team", cwd=new).status == 0
    assert project.run("teamd", "start", cwd=new).status == 0
    wait_until(lambda: len(project.asked("ann")) == 3, what="ann reads the mail")
    assert_ends(project, new)
