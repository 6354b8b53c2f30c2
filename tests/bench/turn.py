"""A turn: the time between two requests of a teammate, compared with its bare parts.

`python -m tests.bench.turn [--short] [--grown N]`: N turns come before the measured ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

import anthropic

from teamd.sandbox.bubblewrap import build_arguments
from teamd.sandbox.protected_paths import BUILT_IN, find_protected_paths
from tests.bench import imitation
from tests.bench.ruler import interleave, median, options, percentile, table
from tests.shells import sandboxed_shell
from tests.waiting import wait_until

_BIN: Final = Path(sys.executable).parent
_READ: Final = {"path": "note.txt", "limit": "{}"}
_CALLS: Final = 10  # per wake
_LIMIT_MS: Final = 100
_LIMIT_FACTOR: Final = 3  # times bubblewrap alone
_GROWN: Final = 40  # per wake: few enough for the limit on calls


class Team:
    """A team with one teammate that calls the imitation server."""

    def __init__(self, root: Path, service: imitation.Imitation) -> None:
        self.folder, self.service = root / "project", service
        home = root / "home"
        for made in (self.folder, home):
            made.mkdir()
        path = os.pathsep.join((str(_BIN), os.environ["PATH"]))
        own = {"PATH": path, "HOME": str(home), "XDG_STATE_HOME": str(root)}
        self.environment = {**own, **service.environment}
        (self.folder / "note.txt").write_text("A line.\n")

    def run(self, *argv: str) -> str:
        """Run a command that must succeed."""
        done = subprocess.run(
            argv, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def wake(self, tool: str, given: dict[str, str], calls: int = _CALLS) -> list[float]:
        """Have the teammate call a tool so many times; return the seconds between its requests."""
        self.service.seen()  # discard earlier requests
        self.service.answer(tool=tool, given=given, calls=calls + 1)
        self.run("teamctl", "send", "ann", "go on")
        seen: list[imitation.Request] = []

        def done() -> bool:
            seen.extend(self.service.seen())
            return len(seen) > calls

        wait_until(done, timeout_seconds=120, what="the wake is over")
        self.size = seen[-1].size
        return [after.whole - before.whole for before, after in pairwise(seen)]


def bare_calls(service: imitation.Imitation, calls: int = _CALLS) -> float:
    """Return the median seconds of a call of the SDK with the same request."""
    body = service.last()
    body.pop("stream")
    service.answer()
    key = service.environment["ANTHROPIC_API_KEY"]
    with anthropic.Anthropic(base_url=service.url, api_key=key) as client:
        seconds = []
        for _ in range(calls + 2):
            begun = time.perf_counter()
            with client.messages.stream(**body) as stream:
                stream.get_final_message()
            seconds.append(time.perf_counter() - begun)
        return median(seconds[2:])


def bare_sync(folder: Path) -> float:
    """Return the median seconds of appending a record and syncing it to the disk."""
    fd = os.open(folder / "records", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seconds = []
    for _ in range(_CALLS):
        begun = time.perf_counter()
        os.write(fd, b"x" * 300 + b"\n")
        os.fdatasync(fd)
        seconds.append(time.perf_counter() - begun)
    os.close(fd)
    return median(seconds)


def bubblewrap(aside: Path) -> list[str]:
    """Return the command line that runs `true` in a teammate's sandbox."""
    workspace = aside / "workspace"
    for name in BUILT_IN:
        (workspace / name).mkdir(parents=True)
    shell = sandboxed_shell(workspace, aside=aside)
    places = find_protected_paths(workspace, BUILT_IN)
    return [*build_arguments(shell.program, shell.policy, places), "--", "true"]


def timed(argv: list[str]) -> None:
    subprocess.run(argv, check=True, env={})


def measure(rounds: int, grown: int = 0) -> str:
    with tempfile.TemporaryDirectory() as name, imitation.running() as service:
        root = Path(name)
        team = Team(root, service)
        argv = bubblewrap(root / "sandbox")
        team.run("teamd", "start")
        try:
            team.run("teamctl", "spawn", "ann", "coder", "Wait.", "--wait")  # a first request
            for _ in range(0, grown, _GROWN):
                team.wake("read_file", _READ, _GROWN)
            gaps: dict[str, list[float]] = {"bash": [], "read_file": []}

            def turns(tool: str, given: dict[str, str]) -> float:
                seconds = team.wake(tool, given)
                gaps[tool] += seconds
                return median(seconds)

            cases = {
                "a turn with bash": lambda: turns("bash", {"command": "true # {}"}),
                "a turn with read_file": lambda: turns("read_file", _READ),
                "the SDK's bare call": lambda: bare_calls(service),
                "bwrap … true": lambda: timed(argv),
                "append and fdatasync": lambda: bare_sync(root),
            }
            samples = interleave(cases, rounds)
        finally:
            team.run("teamd", "stop")
    limit = min(_LIMIT_MS, 1000 * _LIMIT_FACTOR * median(samples["bwrap … true"]))
    rows = [["what", "median ms", "95th ms", "limit ms"]]
    for case, seconds in samples.items():
        worst = gaps.get(case.removeprefix("a turn with "), seconds)
        row = [case, _ms(median(seconds)), _ms(percentile(worst, 0.95))]
        rows.append([*row, f"{limit:.1f}" if case == "a turn with bash" else ""])
    return table(f"A turn outside the model, request of {team.size} bytes", rows)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


if __name__ == "__main__":
    arguments = options(__doc__, grown=0)
    print(measure(2 if arguments.short else 12, arguments.grown))
