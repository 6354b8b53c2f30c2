"""Slots for model calls, over processes that are killed, and a service that refuses."""

from __future__ import annotations

import os
import resource
import signal

import pytest

from tests.e2e.harness import Project
from tests.strict.faults import Stall, Status
from tests.waiting import wait_until

NAMES = ("ann", "bob", "cid", "dora")


def declared(*names: str, slots: int) -> str:
    """Settings with so many slots and these teammates."""
    each = (f'[[teammate]]\nname = "{name}"\nrole = "clerk"\nprompt = "Go."\n' for name in names)
    return f"[model]\nconcurrent_calls = {slots}\n" + "".join(each)


def order(project: Project) -> list[str]:
    """The names of those who have asked, in the order in which they did."""
    return [one.asked.name for one in project.server.requests]


def test_the_slot_of_a_killed_teammate_is_free_at_once(project: Project) -> None:
    """Its own next process comes behind those who wait; nothing of its turn is lost."""
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


def test_first_come_first_served(project: Project) -> None:
    """Whoever tried in turn had the slot by luck; some waited ten times as long as others."""
    stall = Stall()
    project.server.faults.push(stall)
    project.write("team.toml", declared(slots=1))
    project.start()
    for name in NAMES:
        project.do("teamctl", "spawn", name, "clerk", "Go.")
        project.wait_for(name, "working")
    assert stall.reached.wait(30)
    stall.released.set()
    for name in NAMES:
        project.wait_for(name, "idle", turns=1)
    assert order(project) == list(NAMES)


@pytest.mark.slow
def test_a_refusal_of_one_slows_all(project: Project) -> None:
    """The others would run into the same wall; then all go on, with one slot less at first."""
    project.server.faults.push(Status(429, retry_after=1))
    project.write("team.toml", declared(*NAMES, slots=1))
    project.start()
    for name in NAMES:
        project.wait_for(name, "idle", turns=1)
    times = [one.received for one in project.server.requests]
    assert len(times) == len(NAMES) + 1, "one call more than needed"
    assert times[1] - times[0] >= 1
    assert order(project)[0] == order(project)[1], "whoever was refused goes first"
    (slowed,) = project.log("teamd", "model calls slowed")
    assert slowed["at_once"] == 1


@pytest.mark.slow
def test_a_change_of_the_settings_counts_from_the_next_call_on(project: Project) -> None:
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
    """A thousand teammates take two each; a command may count on the limit of its user."""
    project.ask_no_service('[[teammate]]\nname = "ann"\nrole = "clerk"\nprompt = "Go."\n')
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = min(usual, 1000)
    project.begin("bash", "-c", f"ulimit -S -n {own}; exec teamd start --foreground")
    pid = project.wait_for("ann", "idle")["pid"]
    limits = [resource.prlimit(one, resource.RLIMIT_NOFILE) for one in (project.supervisor, pid)]
    assert limits == [(most, most), (own, most)]
