"""Runs commands through the `bash` tool in a sandbox, and prints the model's view of the results.

It is a separate program, so that it can run as another user: `python commands.py FOLDER`, with a
JSON document on standard input: `policy`, `commands` (a list of strings), and `job`, a command that
runs beside them.

Without a FOLDER it serves many requests, each in a forked process, since the imports take longer
than most commands: each line of standard input is a document with `folder`, `user`, `environment`
and, in `asked`, a document as above. Each answer is one line: `null` for a failure.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Final, NoReturn

from teamd.programs.sandboxed import Bounds
from teamd.tools import Result, Toolbox
from teamd.tools.background import BackgroundRun, Jobs, StopBackground
from teamd.tools.shell import Bash
from tests.shells import sandboxed_shell

_PR_SET_DUMPABLE: Final = 4


def toolbox(workspace: Path, aside: Path, policy: dict[str, Any]) -> Toolbox:
    """Make the tool in a sandbox; paths and bounds in the policy are in their JSON form."""
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
    background = BackgroundRun(jobs, shell)
    return Toolbox([bash, background, StopBackground(jobs)])


async def run_all(box: Toolbox, commands: list[str], *, job: str = "") -> list[Result]:
    if job:
        begun = await box.run("background_run", {"command": job})
        assert not begun.is_error, begun.text
    results = [await box.run("bash", {"command": command, "timeout": 20}) for command in commands]
    if job:
        await box.run("stop_background", {"job_id": "1"})
        results += [await box.run("bash", {"command": commands[0], "timeout": 20})]
    return results


def answer(folder: Path, asked: dict[str, Any]) -> list[str]:
    """Run a request; return the model's view of each result."""
    box = toolbox(folder / "workspace", folder / "aside", asked.get("policy", {}))
    results = asyncio.run(run_all(box, asked["commands"], job=asked.get("job", "")))
    return [result.text for result in results]


def main(folder: Path) -> None:
    """Run the request on standard input."""
    json.dump(answer(folder, json.load(sys.stdin)), sys.stdout)


def serve() -> None:
    """Run the request of each line until the end of standard input."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _answer_as(json.loads(line))
        _, status = os.waitpid(pid, 0)
        if status != 0:
            print("null", flush=True)  # noqa: T201 -- the answer


def _answer_as(line: dict[str, Any]) -> NoReturn:
    """Run a request as its user, like a program that the user has started."""
    code = 1
    try:
        os.setgroups([])
        os.setgid(line["user"])
        os.setuid(line["user"])
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # an exec would restore this as well
        os.environ.clear()
        os.environ.update(line["environment"])
        folder = Path(line["folder"])
        os.chdir(folder / "workspace")
        print(json.dumps(answer(folder, line["asked"])), flush=True)  # noqa: T201 -- the answer
        code = 0
    except BaseException:  # noqa: BLE001 -- the edge of a process
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1])) if sys.argv[1:] else serve()
