"""A large team with a cheap imitation of the service, shared by several benches."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from teamd.control import ControlRequest
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD
from tests.bench.imitation import Imitation, running
from tests.e2e.harness import Project, opened
from tests.waiting import wait_until

_LONGEST_SECONDS = 600.0
_LOOK_SECONDS = 0.5
_ENDS = ("failed", "paused", "shutdown")


class Crowd:
    """Teammates that have each done a first turn, and are idle.

    Attributes:
        calls: model calls per turn.
        spawn_seconds: the time until the last teammate was idle.
    """

    def __init__(self, project: Project, service: Imitation, size: int, calls: int) -> None:
        self.project = project
        self.service = service
        self.calls = calls
        self.turns = 0
        self.names = [f"t{number}" for number in range(size)]
        self.spawn_seconds = 0.0

    def spawn(self) -> None:
        """Spawn all teammates, and wait until each has done its first turn."""
        begun = time.monotonic()
        inbox = Mailbox(self.project.paths, TEAMD, durable=False)
        for name in self.names:
            arguments = {"name": name, "role": "clerk", "prompt": "Go."}
            request = ControlRequest.within(_LONGEST_SECONDS, "spawn", arguments=arguments)
            inbox.put(request.encode())
        self.wait()
        self.spawn_seconds = time.monotonic() - begun

    def broadcast(self) -> list[float]:
        """Broadcast; return the seconds until the last answer of the turn, for each teammate."""
        begun = time.monotonic()
        self.project.do("teamctl", "broadcast", "On we go.")
        self.wait()
        return [last - begun for _, last in self.service.counts().served.values()]

    def wait(self) -> None:
        """Wait until all have done one more turn and are idle; fail on a loss or a crash."""
        self.turns += 1
        calls = self.turns * self.calls
        wait_until(lambda: not self._lacking(calls), timeout_seconds=_LONGEST_SECONDS, what="calls")
        wait_until(lambda: self._done(calls), timeout_seconds=_LONGEST_SECONDS, what="all idle")

    def _lacking(self, calls: int) -> list[str]:
        time.sleep(_LOOK_SECONDS)  # each look costs time that would distort the measurement
        served = self.service.counts().served
        return [name for name in self.names if served.get(name, (0, 0))[0] < calls]

    def crashes(self) -> int:
        """Return the number of processes that have exited."""
        return len(self.project.log("teamd", "exited"))

    def members(self) -> list[dict[str, Any]]:
        """Return the members of the roster."""
        content = self.project.paths.config.read_bytes()
        found: list[dict[str, Any]] = json.loads(content)["members"]
        return found

    def _done(self, calls: int) -> bool:
        assert not self.crashes(), "a teammate has crashed, and a call of its may be lost"
        members = self.members()
        ended = [one["name"] for one in members if one["status"] in _ENDS]
        assert not ended, f"these have ended: {ended}"
        idle = [one for one in members if one["status"] == "idle" and one["turns"] >= calls]
        return len(idle) == len(self.names)


@contextmanager
def crowd(size: int, settings: str = "", **terms: Any) -> Iterator[Crowd]:
    """Yield a spawned team of this size; `terms` are those of the service."""
    with (
        tempfile.TemporaryDirectory(prefix="bench") as root,
        running(**{"seconds": 0.05, **terms}) as service,
        opened(Path(root)) as project,
    ):
        project.environment |= service.environment
        project.write("team.toml", f'[tools]\nsandbox = "off"\n{settings}')
        project.start()
        made = Crowd(project, service, size, terms.get("calls", 1))
        made.spawn()
        yield made
