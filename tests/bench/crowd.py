"""A team of many teammates over a service that costs little: what several benches measure."""

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
    """Teammates that each have done a first turn, and idle.

    Attributes:
        calls: how many model calls make a turn.
        spawn_seconds: how long it took until the last of them idled.
    """

    def __init__(self, project: Project, service: Imitation, size: int, calls: int) -> None:
        self.project = project
        self.service = service
        self.calls = calls
        self.turns = 0
        self.names = [f"t{number}" for number in range(size)]
        self.spawn_seconds = 0.0

    def spawn(self) -> None:
        """Spawn all of them, and wait until all have had their first turn."""
        begun = time.monotonic()
        inbox = Mailbox(self.project.paths, TEAMD, durable=False)
        for name in self.names:
            arguments = {"name": name, "role": "clerk", "prompt": "Go."}
            request = ControlRequest.within(_LONGEST_SECONDS, "spawn", arguments=arguments)
            inbox.put(request.encode())
        self.wait()
        self.spawn_seconds = time.monotonic() - begun

    def broadcast(self) -> list[float]:
        """Write to all of them; return the seconds until each had its last answer of the turn."""
        begun = time.monotonic()
        self.project.do("teamctl", "broadcast", "On we go.")
        self.wait()
        return [last - begun for _, last in self.service.counts().served.values()]

    def wait(self) -> None:
        """Wait until all have had one more turn and idle; fails where one is lost or crashed."""
        self.turns += 1
        calls = self.turns * self.calls
        wait_until(lambda: not self._lacking(calls), timeout_seconds=_LONGEST_SECONDS, what="calls")
        wait_until(lambda: self._done(calls), timeout_seconds=_LONGEST_SECONDS, what="all idle")

    def _lacking(self, calls: int) -> list[str]:
        time.sleep(_LOOK_SECONDS)  # a look computes: it is not to be what is measured
        served = self.service.counts().served
        return [name for name in self.names if served.get(name, (0, 0))[0] < calls]

    def crashes(self) -> int:
        """Return how many processes have ended so far."""
        return len(self.project.log("teamd", "exited"))

    def members(self) -> list[dict[str, Any]]:
        """Return the members as the roster has them."""
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
    """A team of so many, spawned; `terms` are those of the service."""
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
