"""Setting the clock back by an hour while a team works has no effect."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness import Project
from tests.waiting import wait_until

pytestmark = pytest.mark.faketime

PRELOAD: Final = Path(__file__).with_name("faked_clock")
FAKES: Final = ("LD_PRELOAD", "FAKETIME", "NO_FAKE", "PYTHONPATH")


@pytest.fixture
def set_clock(project: Project) -> Callable[[str], object]:
    """Return a function that sets the clock of all the project's processes by an offset like `-1h`.

    Programs under libfaketime are not forked, and need seconds to load the SDK.
    """
    project.ask_no_service()
    show = ["faketime", "-f", "+0", "printenv", "LD_PRELOAD"]
    library = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()
    offset = project.write("clock", "+0")
    project.environment |= {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # as when the real clock is set
        "NO_FAKE_STAT": "1",
        "PYTHONPATH": str(PRELOAD),
    }

    def set_to(text: str) -> None:
        # libfaketime ends a program that reads an empty file.
        project.write("clock.new", text).rename(offset)

    return set_to


@contextmanager
def true_clock(project: Project) -> Iterator[None]:
    """Run commands with the true clock, so that they can be forked, before the clock is set."""
    faked = project.environment
    project.environment = {key: faked[key] for key in faked if not key.startswith(FAKES)}
    try:
        yield
    finally:
        project.environment = faked


@pytest.mark.slow
def test_a_team_continues_when_the_clock_is_set_back(
    project: Project, set_clock: Callable[[str], object]
) -> None:
    """Requests are answered, mail arrives once, a crash costs no hour, and ids are unique."""
    project.start()
    with true_clock(project):
        project.do("teamctl", "spawn", "ann", "coder", "Before.", "--wait")
    pid = project.wait_for("ann", "idle", turns=1)["pid"]
    before = project.records("ann", "mail")[0]["messages"][0]["timestamp"]
    set_clock("-1h")

    project.do("teamctl", "send", "ann", "An hour earlier.", "--wait")
    project.wait_for("ann", "idle", turns=2)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: project.member("ann")["pid"] not in (pid, None), what="ann is back")
    project.do("teamctl", "send", "ann", "Are you back?", "--wait")
    project.do("teamctl", "spawn", "bob", "tester", "Go.", "--wait")
    assert "bob approved and is shut down" in project.do("teamctl", "shutdown", "bob")
    project.wait_for("ann", "idle", turns=3)

    told = [m for record in project.records("ann", "mail") for m in record["messages"]]
    assert [m["content"] for m in told] == ["Before.", "An hour earlier.", "Are you back?"]
    assert before - 3700 < told[1]["timestamp"] < before - 3500, "the clock was set back indeed"
    assert len({m["id"] for m in told}) == 3


@pytest.mark.slow
def test_a_restart_is_not_delayed_by_an_hour(
    project: Project, set_clock: Callable[[str], object]
) -> None:
    project.start()
    with true_clock(project):
        project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    pid = project.wait_for("ann", "idle")["pid"]
    for crash in range(5):
        os.kill(pid, signal.SIGKILL)
        if crash < 4:
            wait_until(lambda: project.member("ann")["pid"] not in (pid, None), what="ann is back")  # noqa: B023 -- called at once
            pid = project.member("ann")["pid"]
    wait_until(lambda: project.member("ann")["pid"] is None, what="ann waits for her restart")
    set_clock("-1h")
    wait_until(lambda: project.member("ann")["pid"] is not None, what="ann is back")
