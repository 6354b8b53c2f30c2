"""Teammates that `team.toml` declares are spawned once, and get their prompt once."""

from __future__ import annotations

import json
import os
import signal

from teamd.messages import Message
from tests.children import holding
from tests.e2e.harness import Project
from tests.waiting import wait_until

ANN = '[[teammate]]\nname = "ann"\nrole = "coder"\nprompt = "Count the files."\n'
BEN = '[[teammate]]\nname = "ben"\nrole = "coder"\nprompt = "Count the lines."\n'


def take_out_of_roster(project: Project, name: str) -> None:
    roster = json.loads(project.paths.config.read_bytes())
    roster["members"] = [m for m in roster["members"] if m["name"] != name]
    project.paths.config.write_text(json.dumps(roster))


def told(project: Project, name: str) -> list[str]:
    return [m["content"] for record in project.records(name, "mail") for m in record["messages"]]


def die_between_prompt_and_roster(project: Project, name: str) -> None:
    """Leave the state of a teamd killed at that point: a prompt in the inbox, but no member."""
    with holding(project.paths.life(name)):  # so that the prompt is not read
        supervisor = project.start()
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not project.survivors(), what="all have ended")
    take_out_of_roster(project, name)
    (line,) = project.mail(name).splitlines()
    assert Message.decode(line.encode(), to=name).content == "Count the files."


def test_a_start_killed_before_it_writes_the_roster_does_not_send_a_second_prompt(
    project: Project,
) -> None:
    project.write("team.toml", ANN)
    project.paths.create()
    die_between_prompt_and_roster(project, "ann")
    project.start()
    project.wait_for("ann", "idle", turns=1)
    assert told(project, "ann") == ["Count the files."]
    assert len(project.asked("ann")) == 1


def test_a_member_without_its_prompt_gets_it_at_the_next_start(project: Project) -> None:
    """A teamd killed between roster and prompt would leave a teammate that idles for ever."""
    project.write("team.toml", ANN)
    project.enlist("ann", "ben")
    project.start()
    project.wait_for("ann", "idle", turns=1)
    project.restart()
    project.wait_for("ann", "idle", turns=1)
    assert told(project, "ann") == ["Count the files."]
    assert told(project, "ben") == []


def test_a_member_removed_from_the_roster_by_hand_gets_its_prompt_again(project: Project) -> None:
    """Otherwise it would run without work, since its conversation already has the first prompt."""
    project.write("team.toml", ANN + BEN)
    project.start()
    for name in ("ann", "ben"):
        project.wait_for(name, "idle", turns=1)
    project.do("teamd", "stop")
    take_out_of_roster(project, "ann")
    project.start()
    project.wait_for("ann", "idle", turns=2)
    assert told(project, "ann") == ["Count the files."] * 2
    assert told(project, "ben") == ["Count the lines."]
