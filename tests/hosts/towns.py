"""Teams on several hosts on one machine: a folder, a teamd and a postman for each host."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teamd.hosts.far import FarHosts
from tests.e2e.harness import Ended, Project, opened
from tests.hosts.brokers import free_port, plain
from tests.waiting import wait_until


@dataclass(slots=True)
class Hosts:
    """The hosts of one team, and their broker.

    Attributes:
        projects: by the names of the hosts.
        port: the broker's loopback port, without TLS.
    """

    folder: Path
    projects: dict[str, Project]
    port: int
    _brokers: ExitStack
    _broker: subprocess.Popen[bytes] | None = None

    def on(self, host: str, *words: str) -> Ended:
        """Run `teamctl` on a host, with any exit status."""
        return self.projects[host].run("teamctl", *words)

    def json(self, host: str, *words: str) -> Any:
        """Run a command of `teamctl` that must succeed; return its JSON."""
        return json.loads(self.projects[host].do("teamctl", *words, "--json"))

    def states(self, host: str) -> dict[str, str]:
        """Return the states of the other hosts as one host sees them."""
        return {one["name"]: one["state"] for one in self.json(host, "hosts")["hosts"]}

    def wait_for(self, host: str, other: str, state: str) -> None:
        """Wait until one host's view shows another host in a state."""
        seen = FarHosts(self.projects[host].paths, host)

        def so() -> bool:
            return any(one.name == other and one.state == state for one in seen.views())

        wait_until(so, what=f"{other} is {state}")

    def start_broker(self) -> None:
        """Start the broker; it runs until the end or until it is killed."""
        self._broker = self._brokers.enter_context(plain(self.folder, self.port))

    def signal_broker(self, number: int) -> None:
        """Send the broker a signal."""
        assert self._broker is not None
        self._broker.send_signal(number)

    def kill_broker(self) -> None:
        """Kill the broker, which loses all its data."""
        assert self._broker is not None
        self._broker.kill()
        self._broker.wait()


@contextmanager
def hosts(
    folder: Path, names: Sequence[str] = ("h1", "h2"), *, allow: str = "", started: bool = True
) -> Iterator[Hosts]:
    """Set up hosts whose teammates follow scripts.

    Args:
        folder: the folder for all hosts.
        names: of the hosts.
        allow: further lines of `[hosts]`.
        started: whether each teamd is started.
    """
    port = free_port()
    with ExitStack() as stack:
        made: dict[str, Project] = {}
        for name in names:
            (folder / name).mkdir()
            project = made[name] = stack.enter_context(opened(folder / name))
            servers = f'servers = ["nats://127.0.0.1:{port}"]'
            project.ask_no_service(f'[hosts]\nname = "{name}"\n{servers}\n{allow}\n')
        town = Hosts(folder, made, port, stack.enter_context(ExitStack()))
        if started:
            for project in made.values():
                project.start()
        yield town
