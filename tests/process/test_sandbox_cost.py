"""The cost of the sandbox for a command, compared with bubblewrap alone; printed with `-s`."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from teamd.sandbox.bubblewrap import build_arguments
from teamd.sandbox.protected_paths import BUILT_IN, find_protected_paths
from teamd.tools import Toolbox
from teamd.tools.shell import Bash
from tests.shells import sandboxed_shell

ROUNDS: Final = 40


@pytest.mark.long
@pytest.mark.alone
def test_a_sandboxed_true_costs_less_than_two_and_a_half_times_bubblewrap(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    shell = sandboxed_shell(workspace, aside=tmp_path)
    box = Toolbox([Bash(shell=shell, timeout_seconds=60, output_bytes=2000)])
    for name in BUILT_IN:  # existing paths are mounted as well, but need no placeholder
        (workspace / name).mkdir(parents=True)
    places = find_protected_paths(workspace, BUILT_IN)
    argv = [
        *build_arguments(shell.program, shell.policy, places),
        "--",
        "true",
    ]
    alone, through = [], []
    with asyncio.Runner() as runner:
        for _ in range(ROUNDS):
            alone.append(_time(lambda: subprocess.run(argv, check=True, env={})))
            call = box.run("bash", {"command": "true"})
            through.append(_time(partial(runner.run, call)))
    milliseconds = 1000 * statistics.median(alone)
    ratio = statistics.median(through) / statistics.median(alone)
    print(f"\n{ratio:.2f} times bubblewrap alone, {milliseconds:.1f} ms")  # noqa: T201 -- for people
    assert ratio < 2.5


def _time(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
