"""The memory of teammates that have worked: `python -m tests.bench.memory`.

For comparison, a fresh process with the SDK, which has had one reply, runs next to the team: both
share the pages of library files.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
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
        _idle_team(team, folder, seconds) as project,
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
        *([_row(f"worked and idle, each of {team}", worked, alone, "1/3")] if all_idle else []),
        _row(f"hibernating, each of {team}", rested, alone, "1/8"),
        _row("teamd", [supervisor], alone),
    ]


def pss(pid: int) -> float:
    """Return a process's proportional share of memory (PSS) in MiB."""
    with suppress(OSError):  # it has ended: another process hibernates in its place
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024
    return 0.0


def _pids(project: Project) -> dict[str, int]:
    members = Roster(project.paths).read().members
    return {member.name: member.pid for member in members if member.pid is not None}


def _hibernations(project: Project) -> int:
    return project.paths.log("teamd").read_text(encoding="utf-8").count('"hibernates"')


@contextmanager
def _idle_team(team: int, folder: Path, hibernate_seconds: float) -> Iterator[Project]:
    """Yield a team of idle teammates that have done a first task, with a command."""
    folder.mkdir()
    with opened(folder, installed=True) as project:
        names = [f"t{number}" for number in range(team)]
        declared = (f'[[teammate]]\nname = "{n}"\nrole = "clerk"\nprompt = "Go."' for n in names)
        settings = f"[supervision]\nhibernate_seconds = {hibernate_seconds}"
        project.write("team.toml", "\n".join([settings, *declared]))
        for name in names:
            project.stage.act(name, _clerk)
        project.start()
        wait_until(
            lambda: all(one.turns >= 2 for one in Roster(project.paths).read().members),
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


def _row(what: str, seen: list[float], alone: float, limit: str = "") -> list[str]:
    middle = ruler.median(seen)
    return [what, f"{middle:.2f}", f"{max(seen):.2f}", f"{middle / alone:.3f}", limit]


def main() -> None:
    team = 3 if ruler.options(__doc__).short else 100
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(team, Path(folder) / "team")
    head = ["PSS, MiB", "median", "highest", "to fresh", "at most"]
    print(ruler.table(f"A team of {team}", [head, *rows]))


if __name__ == "__main__":
    main()
