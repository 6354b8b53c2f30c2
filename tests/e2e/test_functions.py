"""The number of functions that a main path executes: the code that a reader has to follow.

All processes of the team count, so the figures depend a little on timing: 460, 690 to 740 and 570
functions. The limits may only fall.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from teamd.messages import new_id
from tests.e2e.harness import Project, opened
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

PRELOAD: Final = Path(__file__).parent / "traced"


class Trace:
    """The functions that the processes of a project execute between `begin` and `end`."""

    def __init__(self, link: Path) -> None:
        self._link = link
        self._target = link.with_name(f"{link.name}-{new_id()}")

    def begin(self) -> None:
        self._link.symlink_to(self._target)

    def end(self) -> None:
        self._link.unlink(missing_ok=True)  # a later request ends nothing

    def functions(self) -> set[str]:
        """Wait for the end, and return the functions of all processes."""
        wait_until(lambda: self._target.exists() and not self._link.is_symlink(), what="the end")
        found = set(self._target.read_text(encoding="utf-8").split())
        print(f"{len(found)} functions:", *sorted(found), sep="\n  ")  # noqa: T201 -- for `-s`
        return found


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A running project whose processes record their functions."""
    with opened(tmp_path_factory.mktemp("traced")) as project:
        file = str(project.root / "functions")
        project.environment |= {"PYTHONPATH": str(PRELOAD), "TRACED": file}
        project.start()
        yield project


@pytest.fixture
def trace(traced: Project) -> Trace:
    return Trace(traced.root / "functions")


def test_a_sent_message_reaches_the_request(traced: Project, trace: Trace) -> None:
    def ann(asked: Asked) -> Answer:
        if "Hello." in asked.last_text:
            trace.end()
        return say("Yes.")

    traced.stage.act("ann", ann)
    traced.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    traced.wait_for("ann", "idle")
    trace.begin()
    traced.do("teamctl", "send", "ann", "Hello.")
    assert len(trace.functions()) <= 490
    traced.wait_for("ann", "idle", turns=2)


def test_a_spawned_teammate_reaches_its_first_request(traced: Project, trace: Trace) -> None:
    def bob(_: Asked) -> Answer:
        trace.end()
        return say("Yes.")

    traced.stage.act("bob", bob)
    trace.begin()
    traced.do("teamctl", "spawn", "bob", "clerk", "Go.")
    assert len(trace.functions()) <= 770
    traced.wait_for("bob", "idle")


def test_a_turn_runs_a_command(traced: Project, trace: Trace) -> None:
    """From the reply with the call to the next request: reply, ledger, sandbox, transcript."""

    def eve(asked: Asked) -> Answer:
        if asked.last_results:
            trace.end()
        elif "Run it." in asked.last_text:
            trace.begin()
            return use(("bash", {"command": "echo hi"}))
        return say("Yes.")

    traced.stage.act("eve", eve)
    traced.do("teamctl", "spawn", "eve", "clerk", "Go.", "--wait")
    traced.wait_for("eve", "idle")
    traced.do("teamctl", "send", "eve", "Run it.")
    assert len(trace.functions()) <= 630
