"""The first hour of a newcomer who follows the screen and reads no log."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.e2e.harness import Project
from tests.strict.asked import Asked
from tests.strict.faults import Status
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

SETTINGS = """
[model]
max_tokens = 1000
[limits]
teammate_tokens = 30_000
[[permission]]
tool = "bash"
command = "touch published"
then = "ask"
"""
TEAM = {"ann": "publishes", "bob": "writes", "cay": "reads"}


def lead(asked: Asked) -> Answer:
    if "Build it." not in asked.last_text:
        return say("I see.")
    spawns = [{"name": name, "role": role, "prompt": "Go."} for name, role in TEAM.items()]
    return use(*(("spawn_teammate", one) for one in spawns))


@pytest.mark.slow
def test_a_newcomer_succeeds_by_following_the_screen_alone(project: Project) -> None:
    """A lead, three teammates, a server that fails for a while, a permission, a limit."""

    def look() -> str:
        return project.run("teamctl", "team").stdout

    def obey() -> bool:
        """Run the first command that the screen suggests; return whether there was one."""
        found = re.search(r"`(team(?:ctl|d) [^`]+)`", look())
        if found is not None:
            project.do(*shlex.split(found[1]))
        return found is not None

    def at_rest() -> bool:
        rows = [line.split()[:3] for line in look().splitlines()[1:]]
        return [row[2] for row in rows if row and row[0] in (*TEAM, "lead")] == ["idle"] * 4

    project.write("team.toml", SETTINGS)
    project.stage.act("lead", lead)
    report = use(("send_message", {"to": "lead", "content": "done"}))
    project.stage.play("ann", use(("bash", {"command": "touch published"})), report, say("Done."))
    wordy = {"path": "notes.txt", "content": "x" * 40_000}
    project.stage.play("bob", use(("write_file", wordy)), report, say("Done."))
    project.stage.play("cay", report, say("Done."))
    project.server.faults.push(Status(500, retry_after=2))
    chat = project.begin("teamctl", "chat", "Build it.")
    wait_until(lambda: re.search(r"lead +lead .*retrying 2/10: .*500", look()), what="it says why")
    assert chat.wait(60) == 1, "ann waits for the person, and bob for a higher limit"
    wait_until(lambda: "ann asks to run: bash touch published" in look(), what="ann asks")
    wait_until(lambda: "bob is paused: the next call does not fit" in look(), what="bob may not")
    wait_until(lambda: not obey() and at_rest(), what="all is done")
    assert (project.folder / "published").exists()
    assert len((project.folder / "notes.txt").read_bytes()) == 40_000
    assert project.mail("lead") == ""
