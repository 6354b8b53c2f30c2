"""How many functions a message goes through on its way: what one has to read to follow it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness import Project

PRELOAD: Final = Path(__file__).parent / "hops"
# Where a way begins in each process: what is further out on the stack was there before.
_COMMAND: Final = "teamctl/main:main"
_SUPERVISOR: Final = "teamd/supervisor/supervisor:Supervisor.run"
_FORKED: Final = "teamd/supervisor/fork:fork"
_PROCESS: Final = "teamd/agent/process:TeammateProcess._live"
_AGENT: Final = "teamd/agent/loop:Loop.run"
_SENT: Final = (
    (_COMMAND, "pwrite inbox/bob.jsonl"),
    (_AGENT, "pread inbox/bob.jsonl"),
    (_AGENT, "pwrite transcripts/bob.jsonl"),
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

pytestmark = pytest.mark.installed


@pytest.fixture
def log(project: Project) -> Path:
    path = project.root / "hops"
    project.environment |= {"PYTHONPATH": str(PRELOAD), "HOPS": str(path)}
    project.start()
    return path


def test_a_message_that_is_sent_reaches_the_model(project: Project, log: Path) -> None:
    project.do("teamctl", "spawn", "bob", "clerk", "Go.", "--wait")
    project.wait_for("bob", "idle")
    log.unlink()
    project.do("teamctl", "send", "bob", "Hello.")
    wait_until(lambda: _has_asked(log), what="the model is asked")
    assert len(_hops(log, _SENT)) <= 35


def test_a_teammate_that_is_spawned_asks_the_model(project: Project, log: Path) -> None:
    project.do("teamctl", "spawn", "bob", "clerk", "Go.")
    wait_until(lambda: _has_asked(log), what="the model is asked")
    assert len(_hops(log, _SPAWNED)) <= 60


def _has_asked(log: Path) -> bool:
    lines = log.read_text(encoding="utf-8").splitlines()
    return any(line.startswith("request\t") and _PROCESS in line.split("\t") for line in lines)


def _hops(log: Path, way: tuple[tuple[str, str], ...]) -> list[str]:
    """The functions on the way, in the order in which they come."""
    lines = [line.split("\t") for line in log.read_text(encoding="utf-8").splitlines()]
    found = dict.fromkeys(hop for step in way for hop in _first(lines, *step))
    print(f"{len(found)} hops:", *found, sep="\n  ")  # noqa: T201 -- for who runs it with `-s`
    return list(found)


def _first(lines: list[list[str]], beginning: str, station: str) -> Iterator[str]:
    """The stack of the first call at a station, from where the way begins in its process."""
    for here, *stack in lines:
        if here.startswith(station) and beginning in stack:
            yield from stack[stack.index(beginning) :]
            return
    raise AssertionError(f"nothing came to {station!r} from {beginning}")
