"""Teammates at work that are asked to shut down."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.e2e.harness import Project
from tests.strict.asked import Asked, Model
from tests.strict.replies import Answer, use
from tests.waiting import wait_until

REQUEST = re.compile(r'type="shutdown_request" request_id="([^"]+)"')
WORK = "touch busy-{name}; until [ -e go-{name} ]; do sleep 0.02; done; rm go-{name}"


def at_work(team: Project, name: str) -> None:
    """Have somebody run a command until `go-NAME` is there."""
    team.do("teamctl", "spawn", name, "clerk", "Go.")
    wait_until((team.folder / f"busy-{name}").exists, what=f"{name} works")


def ask_at_work(
    team: Project, name: str, *command: str, inbox: Path | None = None
) -> tuple[int, str, str]:
    """Ask somebody to shut down who is at work, and end that work once the request waits.

    Asked between two pieces of work, it would answer at once, with the next model call.

    Args:
        team: where the command runs.
        name: who is at work.
        command: what asks, with the words behind `teamctl`.
        inbox: where the request waits; by default the one of this team.

    Returns:
        Its exit code, and what it wrote to stdout and stderr.
    """
    busy, pipe = team.folder / f"busy-{name}", subprocess.PIPE
    inbox = inbox or team.paths.inbox(name)
    wait_until(busy.exists, what=f"{name} works")
    asking = team.begin("teamctl", *command, "--timeout", "50", stdout=pipe, stderr=pipe)
    wait_until(lambda: "shutdown_request" in inbox.read_text(), what="the request")
    busy.unlink()
    team.write(f"go-{name}", "")
    stdout, stderr = asking.communicate(timeout=60)
    return asking.returncode, stdout, stderr


def answering(name: str, *verdicts: tuple[bool, str]) -> Model:
    """A model that works, and answers requests to shut down with these, one each."""
    left = list(verdicts)

    def model(asked: Asked) -> Answer:
        found = REQUEST.findall(asked.last_text)
        if found:
            approve, reason = left.pop(0)
            given = {"request_id": found[-1], "approve": approve, "reason": reason}
            return use(("shutdown_response", given))
        return use(("bash", {"command": WORK.format(name=name)}))

    return model
