"""The number of functions that a main path executes: the code that a reader has to follow.

All processes of the team count, so the figures depend on timing: 482, 622 and 667 functions on an
idle machine, up to 770 on a busy one. The limits leave room for that, and may only fall.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness import Project, opened
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

PRELOAD: Final = Path(__file__).parent / "traced"


class Trace:
    """The functions that the processes of a project execute between `begin` and `end`."""

    def __init__(self, file: Path) -> None:
        self._file, self._ended = file, file.with_suffix(".ended")

    def begin(self) -> None:
        self._ended.unlink(missing_ok=True)
        self._file.touch()

    def end(self) -> None:
        with suppress(FileNotFoundError):  # ended by an earlier request
            self._file.rename(self._ended)

    def functions(self) -> set[str]:
        """Wait for the end, and return the functions of all processes."""
        wait_until(self._ended.exists, what="the request")
        found = set(self._ended.read_text(encoding="utf-8").split())
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
    assert len(trace.functions()) <= 650
    traced.wait_for("ann", "idle", turns=2)


def test_a_spawned_teammate_reaches_its_first_request(traced: Project, trace: Trace) -> None:
    def bob(_: Asked) -> Answer:
        trace.end()
        return say("Yes.")

    traced.stage.act("bob", bob)
    trace.begin()
    traced.do("teamctl", "spawn", "bob", "clerk", "Go.")
    assert len(trace.functions()) <= 950
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
    assert len(trace.functions()) <= 950
