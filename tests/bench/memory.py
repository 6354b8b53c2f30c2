"""The memory of teammates that have worked, and of many live teammates.

`python -m tests.bench.memory [--short | --many] [--team N]`. For comparison, a fresh process with
the SDK, which has had one reply, runs next to the team: both share the pages of library files.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from teamd.team.roster import Roster
from tests.bench import ruler
from tests.e2e.harness import Project, opened
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

MANY: Final = 1000
_WAIT_SECONDS: Final = 600.0
_HIBERNATE_SECONDS: Final = 3.0
# The minimal program that runs a teammate alone: the SDK, a client, one streamed reply.
_FRESH: Final = """
import asyncio, sys
from anthropic import AsyncAnthropic

async def main():
    client = AsyncAnthropic()
    talk = [{"role": "user", "content": "Go."}]
    async with client.messages.stream(
        model="claude-sonnet-5-5", max_tokens=100, messages=talk, system="You are 'fresh', role: x."
    ) as stream:
        await stream.get_final_message()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def measure(team: int, folder: Path) -> list[list[str]]:
    """Return rows with the memory of a teammate in each of its states."""
    seconds = _HIBERNATE_SECONDS + team / 5
    with (
        _idle_team(team, folder, f"hibernate_seconds = {seconds}") as project,
        _fresh(project) as fresh,
    ):
        worked = [pss(pid) for pid in _pids(project).values()]
        all_idle = not _hibernations(project)  # otherwise the machine was too slow for this row
        wait_until(lambda: _hibernations(project) >= team, timeout_seconds=_WAIT_SECONDS)
        time.sleep(1.0)  # let memory settle: the lasting use is measured
        rested = [pss(pid) for pid in _pids(project).values()]
        alone, supervisor = pss(fresh), pss(project.supervisor)
    return [
        _row("a fresh process with the SDK", [alone], alone),
        *([_row(f"worked and idle, each of {team}", worked, alone)] if all_idle else []),
        _row(f"hibernating, each of {team}", rested, alone),
        _row("teamd", [supervisor], alone),
    ]


def pss(pid: int) -> float:
    """Return a process's proportional share of memory (PSS) in MiB."""
    with suppress(OSError):  # it has ended: another process hibernates in its place
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024
    return 0.0


def measure_many(team: int, folder: Path) -> list[list[str]]:
    """Return rows about many live teammates, all woken by one broadcast."""
    begun, names = time.monotonic(), _names(team)
    with _idle_team(team, folder, "hibernate_seconds = 5", commands=False) as project:
        worked = time.monotonic() - begun
        wait_until(lambda: _hibernations(project) >= team, timeout_seconds=_WAIT_SECONDS)
        rested = sum(pss(pid) for pid in _pids(project).values())
        free = _available()
        asked, sent = len(project.server.requests), time.monotonic()
        project.run("teamctl", "broadcast", "Go on.", timeout_seconds=_WAIT_SECONDS)
        wait_until(
            lambda: len(project.server.requests) >= asked + team,
            timeout_seconds=_WAIT_SECONDS,
            what="all have asked",
        )
        awake, taken = sum(pss(pid) for pid in _pids(project).values()), free - _available()
        told = Counter(one.asked.name for one in project.server.requests[asked:])
        last = max(one.received for one in project.server.requests[asked:]) - sent
        failed = project.log("teamd", "crashed")
        project.run("teamd", "stop", "--timeout", "300", timeout_seconds=_WAIT_SECONDS)
    return [
        ["teammates alive", str(team)],
        ["until all have worked, s", f"{worked:.0f}"],
        ["PSS of all that hibernate, MiB", f"{rested:.0f}"],
        ["until all have asked after one broadcast, s", f"{last:.1f}"],
        ["PSS of all that are awake, MiB", f"{awake:.0f}"],
        ["less memory available than before, MiB", f"{taken:.0f}"],
        ["crashes", str(len(failed))],
        ["lost", str(len(set(names) - set(told)))],
        ["doubled", str(sum(number > 1 for number in told.values()))],
    ]


def _pids(project: Project) -> dict[str, int]:
    members = Roster(project.paths).read().members
    return {member.name: member.pid for member in members if member.pid is not None}


def _hibernations(project: Project) -> int:
    return project.paths.log("teamd").read_text(encoding="utf-8").count('"hibernates"')


def _available() -> float:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return int(next(one for one in lines if one.startswith("MemAvailable")).split()[1]) / 1024


def _names(team: int) -> list[str]:
    return [f"t{number:04d}" for number in range(team)]


@contextmanager
def _idle_team(
    team: int, folder: Path, supervision: str, *, commands: bool = True
) -> Iterator[Project]:
    """Yield a team of idle teammates that have done a first task, with a command by default."""
    folder.mkdir()
    with opened(folder, installed=True) as project:
        names, turns = _names(team), 2 if commands else 1
        declared = (f'[[teammate]]\nname = "{n}"\nrole = "clerk"\nprompt = "Go."' for n in names)
        project.write("team.toml", "\n".join([f"[supervision]\n{supervision}", *declared]))
        for name in names if commands else ():
            project.stage.act(name, _clerk)
        project.start()
        wait_until(
            lambda: all(one.turns >= turns for one in Roster(project.paths).read().members),
            timeout_seconds=_WAIT_SECONDS,
            what="all have worked",
        )
        yield project


def _clerk(asked: Asked) -> Answer:
    return use(("bash", {"command": "echo done"})) if len(asked.turns) == 1 else say("Done.")


@contextmanager
def _fresh(project: Project) -> Iterator[int]:
    argv = (sys.executable, "-c", _FRESH)
    with subprocess.Popen(argv, env=project.environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            process.kill()


def _row(what: str, seen: list[float], alone: float) -> list[str]:
    middle = statistics.median(seen)
    return [what, f"{middle:.2f}", f"{max(seen):.2f}", f"{middle / alone:.3f}"]


def main() -> None:
    given = ruler.options(__doc__, many=False, team=0)
    print(ruler.machine())
    with tempfile.TemporaryDirectory() as folder:
        if given.many:
            rows = measure_many(given.team or MANY, Path(folder) / "many")
            print(ruler.table("Many teammates", [["what", "figure"], *rows]))
            return
        for team in (3,) if given.short else (given.team,) if given.team else (10, 100):
            rows = measure(team, Path(folder) / str(team))
            head = ["PSS, MiB", "median", "highest", "to fresh"]
            print(ruler.table(f"A team of {team}", [head, *rows]))


if __name__ == "__main__":
    main()
