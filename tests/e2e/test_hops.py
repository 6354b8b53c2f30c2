"""The number of functions that a message passes, which a reader has to follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness import Project, opened
from tests.waiting import wait_until

PRELOAD: Final = Path(__file__).parent / "hops"
# The first function counted in each process; functions further out on the stack were there before.
_COMMAND: Final = "teamctl/main:main"
_SUPERVISOR: Final = "teamd/supervisor/supervisor:Supervisor.run"
_FORKED: Final = "teamd/supervisor/fork:fork"
_PROCESS: Final = "teamd/agent/child:_live"
_AGENT: Final = "teamd/agent/loop:Loop.run"
_SENT: Final = (
    (_COMMAND, "pwrite inbox/ann.jsonl"),
    (_AGENT, "pread inbox/ann.jsonl"),
    (_AGENT, "pwrite transcripts/ann.jsonl"),
    (_AGENT, "task"),
    (_PROCESS, "request"),
)
_SPAWNED: Final = (
    (_COMMAND, "pwrite inbox/teamd.jsonl"),
    (_SUPERVISOR, "pread inbox/teamd.jsonl"),
    (_SUPERVISOR, "pwrite inbox/bob.jsonl"),
    (_SUPERVISOR, "fork"),
    (_FORKED, "pread inbox/bob.jsonl"),
    (_FORKED, "pwrite transcripts/bob.jsonl"),
    (_AGENT, "task"),
    (_FORKED, "request"),
)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A running project whose processes record the functions that a message passes."""
    with opened(tmp_path_factory.mktemp("profiled")) as project:
        hops = str(project.root / "hops")
        project.environment |= {"PYTHONPATH": str(PRELOAD), "HOPS": hops}
        project.start()
        yield project


@pytest.fixture
def log(profiled: Project) -> Path:
    return profiled.root / "hops"


def test_a_message_that_is_sent_reaches_the_model(profiled: Project, log: Path) -> None:
    profiled.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    profiled.wait_for("ann", "idle")
    log.unlink()
    profiled.do("teamctl", "send", "ann", "Hello.")
    wait_until(lambda: _has_asked(log), what="the model is asked")
    assert len(_hops(log, _SENT)) <= 36
    profiled.wait_for("ann", "idle", turns=2)


def test_a_teammate_that_is_spawned_asks_the_model(profiled: Project, log: Path) -> None:
    log.unlink()
    profiled.do("teamctl", "spawn", "bob", "clerk", "Go.")
    wait_until(lambda: _has_asked(log), what="the model is asked")
    assert len(_hops(log, _SPAWNED)) <= 60
    profiled.wait_for("bob", "idle")


def _has_asked(log: Path) -> bool:
    lines = log.read_text(encoding="utf-8").splitlines()
    return any(line.startswith("request\t") and _PROCESS in line.split("\t") for line in lines)


def _hops(log: Path, way: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the functions on the way, in the order of their first call."""
    lines = [line.split("\t") for line in log.read_text(encoding="utf-8").splitlines()]
    found = dict.fromkeys(hop for step in way for hop in _first(lines, *step))
    print(f"{len(found)} hops:", *found, sep="\n  ")  # noqa: T201 -- for who runs it with `-s`
    return list(found)


def _first(lines: list[list[str]], beginning: str, station: str) -> Iterator[str]:
    """Yield the stack of the first call at a station, from the first counted function inward."""
    for here, *stack in lines:
        if here.startswith(station) and beginning in stack:
            yield from stack[stack.index(beginning) :]
            return
    raise AssertionError(f"nothing came to {station!r} from {beginning}")
