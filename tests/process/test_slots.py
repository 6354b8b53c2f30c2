"""Slots for model calls, with killed processes and a service that refuses calls."""

from __future__ import annotations

import os
import resource
import signal

import pytest

from tests.e2e.harness import Project
from tests.strict.faults import Stall
from tests.waiting import wait_until

NAMES = ("ann", "bob", "cid", "dora")


def declared(*names: str, slots: int) -> str:
    """Return settings with that many slots and these teammates."""
    each = (f'[[teammate]]\nname = "{name}"\nrole = "clerk"\nprompt = "Go."\n' for name in names)
    return f"[model]\nconcurrent_calls = {slots}\n" + "".join(each)


def order(project: Project) -> list[str]:
    """Return the names of the teammates in the order of their requests."""
    return [one.asked.name for one in project.server.requests]


def test_the_slot_of_a_killed_teammate_is_free_at_once(project: Project) -> None:
    """Its next process queues behind the waiting teammates; nothing of its turn is lost."""
    stall = Stall()
    project.server.faults.push(stall)
    project.write("team.toml", declared("ann", slots=1))
    project.start()
    assert stall.reached.wait(30)
    project.do("teamctl", "spawn", "bob", "clerk", "Go.")
    project.wait_for("bob", "working")
    assert order(project) == ["ann"]
    os.kill(project.member("ann")["pid"], signal.SIGKILL)
    project.wait_for("bob", "idle", turns=1)
    project.wait_for("ann", "idle", turns=1)
    assert order(project) == ["ann", "bob", "ann"]


@pytest.mark.slow
def test_changed_settings_apply_from_the_next_call(project: Project) -> None:
    stall = Stall()
    project.server.faults.push(stall)
    project.write("team.toml", declared("ann", "bob", slots=1))
    project.start()
    assert stall.reached.wait(30)
    project.write("team.toml", declared("ann", "bob", slots=2))
    assert "next model call" in project.do("teamd", "reload")
    wait_until(lambda: len(project.server.requests) == 2, what="the other asks")
    stall.released.set()
    for name in ("ann", "bob"):
        project.wait_for(name, "idle", turns=1)


@pytest.mark.slow
def test_the_supervisor_may_open_more_files_than_its_teammates(project: Project) -> None:
    """A thousand teammates take two each; a command may rely on the limit of its user."""
    project.ask_no_service('[[teammate]]\nname = "ann"\nrole = "clerk"\nprompt = "Go."\n')
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = min(usual, 1000)
    project.begin("bash", "-c", f"ulimit -S -n {own}; exec teamd start --foreground")
    pid = project.wait_for("ann", "idle")["pid"]
    limits = [resource.prlimit(one, resource.RLIMIT_NOFILE) for one in (project.supervisor, pid)]
    assert limits == [(most, most), (own, most)]
