"""Runs commands through the `bash` tool in a sandbox, and prints what the model would read.

A program of its own, so that it can run as another user: `python commands.py FOLDER`, with a JSON
document on standard input: `policy`, `job` for what runs beside them, and `commands`, texts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teamd.programs.sandboxed import Bounds
from teamd.tools import Result, Toolbox
from teamd.tools.background import BackgroundRun, Jobs, StopBackground
from teamd.tools.shell import Bash
from tests.shells import sandboxed_shell

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def toolbox(workspace: Path, aside: Path, policy: dict[str, Any]) -> Iterator[Toolbox]:
    """The tool in a sandbox; paths and bounds in the policy are as JSON has them."""
    read: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in policy.items()
    }
    for key in ("readable", "hidden"):
        read[key] = tuple(map(Path, read.get(key, ())))
    if "bounds" in read:
        read["bounds"] = Bounds(**read["bounds"])
    shell = sandboxed_shell(workspace, aside=aside, **read)
    jobs = Jobs(aside / "jobs", ring=lambda: None)
    bash = Bash(shell=shell, timeout_seconds=60, output_bytes=4000)
    background = BackgroundRun(jobs, partial(shell.start, background=True))
    with closing(shell):
        yield Toolbox([bash, background, StopBackground(jobs)])


async def run_all(box: Toolbox, commands: list[str], *, job: str = "") -> list[Result]:
    """Run one after the other, all of them beside the job."""
    if job:
        begun = await box.run("background_run", {"command": job})
        assert not begun.is_error, begun.text
    results = [await box.run("bash", {"command": command, "timeout": 20}) for command in commands]
    if job:
        await box.run("stop_background", {"job_id": "1"})
        results += [await box.run("bash", {"command": commands[0], "timeout": 20})]
    return results


def main(folder: Path) -> None:
    """Run what standard input says."""
    asked = json.load(sys.stdin)
    with toolbox(folder / "workspace", folder / "aside", asked.get("policy", {})) as box:
        results = asyncio.run(run_all(box, asked["commands"], job=asked.get("job", "")))
    json.dump([result.text for result in results], sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
