"""The home of a teammate: the file tools and commands mean the same folder by its name."""

from __future__ import annotations

import pytest

from tests.e2e.harness import Project
from tests.strict.replies import say, use

pytestmark = pytest.mark.slow


def test_file_tools_and_commands_see_one_home(project: Project) -> None:
    """Also before the first command, when nobody has made it yet."""
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
