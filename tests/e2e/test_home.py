"""A teammate's home: for file tools and commands, it is the same folder."""

from __future__ import annotations

import shutil
from typing import Final

import pytest

from tests.e2e.harness import Project
from tests.strict.replies import say, use

pytestmark = pytest.mark.slow
SANDBOXES: Final = pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")


def test_file_tools_and_commands_use_the_same_home(project: Project) -> None:
    """Even before the first command creates it."""
    calls: list[tuple[str, dict[str, object]]] = [
        ("write_file", {"path": "~/notes/a", "content": "from a tool\n"}),
        ("bash", {"command": "cat ~/notes/a; echo from bash >~/b; echo $HOME", "description": "x"}),
        ("read_file", {"path": "$HOME/b"}),
        ("read_file", {"path": "/home/teammate/b"}),
    ]
    project.stage.play("ann", *(use(call) for call in calls), say("Done."))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go on.", "--wait")
    said = [one["content"] for one in project.records("ann", "result")]
    assert said == [
        "wrote 1 line, 12 bytes to ~/notes/a",
        "from a tool\n/home/teammate",
        "     1\tfrom bash",
        "     1\tfrom bash",
    ]


@SANDBOXES
def test_start_warns_that_commands_are_refused_if_the_workspace_contains_the_home(
    project: Project,
) -> None:
    project.environment["HOME"] = str(project.folder)
    project.stage.play("ann", use(("bash", {"command": "echo ran"})), say("Done."))
    started = project.run("teamd", "start")
    assert started.status == 0
    refusal = f"the workspace {project.folder} holds the person's home"
    assert started.complaint.startswith(f"teamd: sandbox none: {refusal}")
    project.do("teamctl", "spawn", "ann", "coder", "Go on.", "--wait")
    assert refusal in project.records("ann", "result")[0]["content"]


@SANDBOXES
def test_a_relative_home_is_ignored(project: Project) -> None:
    project.environment["HOME"] = "home"
    project.stage.play("ann", use(("bash", {"command": "echo ran"})), say("Done."))
    started = project.run("teamd", "start")
    assert (started.status, started.stderr) == (0, "")
    project.do("teamctl", "spawn", "ann", "coder", "Go on.", "--wait")
    assert project.records("ann", "result")[0]["content"] == "ran"
