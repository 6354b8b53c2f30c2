"""The commands import their own modules, never those in a project's folder."""

from __future__ import annotations

from typing import Final

import pytest

from tests.e2e.harness import Project
from tests.strict.replies import say

TRAP: Final = "import sys\nsys.exit(f'{__name__} of the project was imported')\n"
# Modules of the standard library, of other packages and of teamd, also as packages.
TRAPS: Final = (
    "json.py", "tomllib.py", "asyncio.py", "click.py", "rich.py", "psutil.py", "anthropic.py",
    "pydantic/__init__.py", "teamd/__init__.py", "teamctl/__init__.py",
)  # fmt: skip


@pytest.mark.slow
def test_a_pythonpath_that_names_the_project_does_not_replace_any_module(project: Project) -> None:
    """Neither in the installed commands nor in the processes that they start."""
    for name in TRAPS:
        project.write(name, TRAP)
    project.environment["PYTHONPATH"] = "."
    project.stage.play("ann", say("Done."))
    started = project.run("teamd", "start")
    assert (started.status, started.stderr) == (0, "")
    spawned = project.run("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    assert (spawned.status, spawned.stdout, spawned.stderr) == (0, "Done.\n", "")
    project.do("teamctl", "team")
    project.do("teamctl", "doctor")
    project.do("teamctl", "create", "other")
    project.do("teamd", "--team", "other", "stop")


@pytest.mark.slow
def test_a_removed_folder_is_refused_with_one_sentence(project: Project) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    for word in ("team", "doctor", "init"):
        looked = project.run("sh", "-c", script, "sh", "teamctl", word)
        assert looked.status == 1
        assert "the current folder has been removed" in looked.complaint
