"""A project's folder that is renamed or moved: its team goes along."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.strict.replies import say, use
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.harness import Project


def populated(project: Project) -> None:
    """A team of ann, who has something to remember."""
    where = (("bash", {"command": "pwd -P"}), ("read_file", {"path": f"{project.folder}/notes"}))
    project.stage.play("ann", say("Noted."), use(*where), say("I see."))
    project.write("notes", "It is blue.")
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Remember: blue.", "--wait")
    project.wait_for("ann", "idle")


def moved(project: Project) -> Path:
    """Rename the folder."""
    new = project.folder.with_name("renamed")
    project.folder.rename(new)
    return new


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


def ended(project: Project, new: Path) -> None:
    """Stop, and put the folder back, where the end of `project` looks for it."""
    stopped = project.run("teamd", "stop", cwd=new)
    assert stopped.status == 0
    assert project.survivors() == {}
    new.rename(project.folder)


def test_a_team_that_was_moved_while_nothing_ran_goes_on_there(project: Project) -> None:
    populated(project)
    project.do("teamd", "stop")
    new = moved(project)
    assert project.run("teamd", "start", cwd=new).status == 0
    assert_goes_on(project, new)
    ended(project, new)


def test_a_team_that_was_moved_while_it_ran_is_stopped_from_there(project: Project) -> None:
    """Its teamd serves a place that is no more; in the new one the same commands reach it."""
    populated(project)
    pid = project.supervisor
    new = moved(project)
    status = project.run("teamd", "status", "--json", cwd=new)
    assert json.loads(status.stdout)["pid"] == pid
    assert project.run("teamd", "restart", cwd=new).status == 0
    assert_goes_on(project, new)
    ended(project, new)


def test_a_teamd_whose_team_was_moved_ends_when_it_is_needed(project: Project) -> None:
    """Mail in the new place wakes it, and it sees that it has nothing to do with that any more."""
    populated(project)
    new = moved(project)
    assert project.run("teamctl", "send", "ann", "Hello?", cwd=new).status == 0
    wait_until(lambda: project.survivors() == {}, timeout_seconds=40, what="teamd has ended")
    assert project.run("teamctl", "team", cwd=new).status == 0
    assert project.run("teamd", "start", cwd=new).status == 0
    wait_until(lambda: len(project.asked("ann")) == 3, what="ann reads the mail")
    ended(project, new)
