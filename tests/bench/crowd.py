"""A team of many teammates over a service that costs little: what several benches measure."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teamd.control import ControlRequest
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD
from tests.bench.service import Running, running
from tests.e2e.harness import Project, opened
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LONGEST_SECONDS = 600.0
_ENDS = ("failed", "paused", "shutdown")


class Crowd:
    """Teammates that each have done a first turn, and idle.

    Attributes:
        spawn_seconds: how long it took until the last of them idled.
    """

    def __init__(self, project: Project, service: Running, size: int) -> None:
        self.project = project
        self.service = service
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
        self.wait(turns=1)
        self.spawn_seconds = time.monotonic() - begun

    def broadcast(self, turns: int = 2) -> float:
        """Write to all of them; return the seconds until the last was answered by its model."""
        begun = time.monotonic()
        self.project.do("teamctl", "broadcast", "On we go.")
        self.wait(turns=turns)
        return max(last for _, last in self.service.counts().served.values()) - begun

    def wait(self, *, turns: int) -> None:
        """Wait until all idle, having had so many turns; fails where one is lost or crashed."""
        wait_until(lambda: self._done(turns), timeout_seconds=_LONGEST_SECONDS, what="all idle")
        served = self.service.counts().served
        lost = [name for name in self.names if served.get(name, (0, 0))[0] < turns]
        assert not lost, f"lost turns: {lost}"

    def crashes(self) -> int:
        """Return how many processes have ended so far."""
        return len(self.project.log("teamd", "exited"))

    def members(self) -> list[dict[str, Any]]:
        """Return the members as the roster has them."""
        content = self.project.paths.config.read_bytes()
        found: list[dict[str, Any]] = json.loads(content)["members"]
        return found

    def _done(self, turns: int) -> bool:
        members = self.members()
        ended = [one["name"] for one in members if one["status"] in _ENDS]
        assert not ended, f"these have ended: {ended}"
        idle = [one for one in members if one["status"] == "idle" and one.get("turns", 0) >= turns]
        return len(idle) == len(self.names)


@contextmanager
def crowd(size: int, settings: str = "", **terms: Any) -> Iterator[Crowd]:
    """A team of so many, spawned; `terms` are those of the service."""
    with (
        tempfile.TemporaryDirectory(prefix="bench") as root,
        running(**{"seconds": 0.05, **terms}) as service,
        opened(Path(root)) as project,
    ):
        project.environment["ANTHROPIC_BASE_URL"] = service.url
        project.write("team.toml", f'[tools]\nsandbox = "off"\n{settings}')
        project.start()
        made = Crowd(project, service, size)
        made.spawn()
        yield made


def of_sizes(sizes: tuple[int, ...], measure: Callable[[Crowd], float]) -> dict[int, float]:
    """Measure teams of several sizes, one after the other."""
    found = {}
    for size in sizes:
        with crowd(size) as made:
            found[size] = measure(made)
    return found
