"""The record of files that a teammate has read survives its process, but not its conversation."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


READ = ("read_file", {"path": "a"})


def edit(old: str, new: str) -> tuple[str, dict[str, object]]:
    return "edit_file", {"path": "a", "old_text": old, "new_text": new}


def test_a_killed_teammate_continues_with_its_record_of_read_files(project: Project) -> None:
    """In another process, also after hibernation; a fresh conversation must read the file again."""
    project.write("team.toml", "[supervision]\nhibernate_seconds = 0.2\n")
    (project.folder / "a").write_text("one")
    project.stage.play("ann", use(READ), say("Read."))
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Read it.", "--wait")
    pid = project.wait_for_process("ann")
    wait_until(lambda: project.member("ann").get("pid") not in (None, pid), what="it hibernates")
    os.kill(project.wait_for_process("ann"), signal.SIGKILL)
    project.stage.play("ann", use(edit("one", "two")), say("Edited."))
    project.do("teamctl", "send", "ann", "Edit it.", "--wait")
    wait_until(lambda: (project.folder / "a").read_text() == "two", what="edited")
    project.wait_for("ann", "idle", turns=4)
    (project.folder / "a").write_text("three")
    project.stage.play("ann", use(edit("three", "x")), say("Refused."))
    project.do("teamctl", "send", "ann", "Edit it again.", "--wait")
    project.wait_for("ann", "idle", turns=6)
    assert project.run("teamctl", "shutdown", "ann", "--force").status == 4
    project.stage.play("ann", use(edit("three", "y")), say("Refused, too."))
    project.do("teamctl", "spawn", "ann", "coder", "Edit it.", "--fresh", "--wait")
    said = [one["content"] for one in project.records("ann", "result")]
    assert said[1] == "replaced 1 occurrence in a, in line 1"
    assert said[2].startswith("a has changed since you read it: a command or a person wrote at")
    assert said[3].startswith("you have not read a, which a command or a person wrote at")
    assert (project.folder / "a").read_text() == "three"
