"""A team at three sizes: the first turns of all, and a broadcast that wakes everybody.

There is no other program to compare with: none keeps a process for each teammate.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from teamd.control import ControlRequest
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD
from tests.bench.imitation import Imitation, running
from tests.bench.ruler import median, options, table
from tests.e2e.harness import Project, opened
from tests.waiting import wait_until

_LONGEST_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 0.5
_CLOSED_SECONDS: Final = 6.0  # a connection to a server is kept for 5
_ENDS: Final = ("failed", "paused", "shutdown")


class Crowd:
    """A team that takes its turns all at once; a lost turn or a crash is an error."""

    def __init__(self, project: Project, service: Imitation, size: int) -> None:
        self._project, self._service = project, service
        self._names = [f"t{number}" for number in range(size)]
        self._turns = 0

    def spawn(self) -> float:
        """Spawn all teammates; return the seconds until the last is idle."""
        begun = time.monotonic()
        inbox = Mailbox(self._project.paths, TEAMD, durable=False)
        for name in self._names:
            arguments = {"name": name, "role": "clerk", "prompt": "Go."}
            request = ControlRequest.within(_LONGEST_SECONDS, "spawn", arguments=arguments)
            inbox.put(request.encode())
        self._wait()
        return time.monotonic() - begun

    def broadcast(self) -> float:
        """Broadcast; return the seconds until the last answer."""
        time.sleep(_CLOSED_SECONDS)
        begun = time.monotonic()
        self._project.do("teamctl", "broadcast", "On we go.")
        self._wait()
        return max(last for _, last in self._service.served().values()) - begun

    def _wait(self) -> None:
        """Wait until all have done one more turn and are idle."""
        self._turns += 1
        wait_until(self._all_served, timeout_seconds=_LONGEST_SECONDS, what="calls")
        wait_until(self._all_idle, timeout_seconds=_LONGEST_SECONDS, what="all idle")

    def _all_served(self) -> bool:
        time.sleep(_LOOK_SECONDS)  # each look costs time that would distort the measurement
        served = self._service.served()
        return all(served.get(name, (0, 0))[0] >= self._turns for name in self._names)

    def _all_idle(self) -> bool:
        assert not self._project.log("teamd", "exited"), "a teammate has crashed"
        members = json.loads(self._project.paths.config.read_bytes())["members"]
        ended = [one["name"] for one in members if one["status"] in _ENDS]
        assert not ended, f"these have ended: {ended}"
        idle = [one for one in members if one["status"] == "idle" and one["turns"] >= self._turns]
        return len(idle) == len(self._names)


def measure(size: int, rounds: int) -> tuple[float, float]:
    """Return the seconds of a team's spawn and of a broadcast to it."""
    with (
        tempfile.TemporaryDirectory(prefix="bench") as root,
        running(seconds=0.05) as service,
        opened(Path(root)) as project,
    ):
        project.environment |= service.environment
        project.write("team.toml", '[tools]\nsandbox = "off"\n')
        project.start()
        crowd = Crowd(project, service, size)
        return crowd.spawn(), median([crowd.broadcast() for _ in range(rounds)])


def _row(what: str, figures: Sequence[float]) -> tuple[str, ...]:
    return (what, *(f"{one:.2f}" for one in figures), f"{figures[-1] / figures[-2]:.1f}")


def main() -> None:
    short = options(__doc__).short
    sizes = (2, 5) if short else (10, 100, 300)
    spawns, broadcasts = zip(*(measure(size, 1 if short else 3) for size in sizes), strict=True)
    head = (
        "until all have answered, s",
        *map(str, sizes),
        "growth of the last, at most 4",
    )
    rows = [head, _row("spawn", spawns), _row("broadcast, at most 20", broadcasts)]
    print(table("Teams; lost turns and crashes: 0", rows))


if __name__ == "__main__":
    main()
