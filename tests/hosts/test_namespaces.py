"""Two simulated machines: network namespaces with a cable between them, and empty homes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from teamctl.hosts.broker import Broker, find_program
from teamctl.hosts.own_host import Keys
from teamd.hosts.view import read_views
from tests.e2e.harness import Ended, Project, opened
from tests.waiting import wait_until

NEAR, FAR = "10.99.0.1", "10.99.0.2"
HEAL_SECONDS = 5.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def may_make_namespaces() -> bool:
    if shutil.which("ip") is None:
        return False
    name = f"probe-{os.getpid()}"
    with suppress(subprocess.CalledProcessError):
        ip("netns", "add", name)
        ip("netns", "del", name)
        return True
    return False


@dataclass(frozen=True, slots=True)
class Machine:
    """A simulated machine with its own network, folder and home.

    Attributes:
        space: the name of its namespace.
        cable: the name of its end of the cable.
    """

    project: Project
    space: str
    cable: str

    def run(self, *argv: str) -> Ended:
        """Run a command on the machine."""
        return self.project.run("ip", "netns", "exec", self.space, *argv)

    def do(self, *argv: str) -> str:
        """Run a command on the machine that must succeed."""
        return self.project.do("ip", "netns", "exec", self.space, *argv)

    def plug(self, state: str) -> None:
        """Disconnect or reconnect the cable: `down` or `up`."""
        ip("-n", self.space, "link", "set", self.cable, state)

    def play_nothing(self) -> None:
        """Replace the model by a script, because the network has no access to it."""
        file = self.project.folder / "team.toml"
        self.project.write("turns.json", '{"turns": {}}')
        with_script = '\n[model]\nscript = "turns.json"\n'
        self.project.write("team.toml", file.read_text().replace("\n[model]\n", with_script, 1))

    def sees(self, host: str) -> str:
        """Return the state of another host by this machine's view."""
        views = read_views(self.project.paths)
        return next((view.state for view in views if view.name == host), "unknown")

    def shows(self, host: str) -> str:
        """Return the state of another host as `teamctl hosts` shows it."""
        rows = json.loads(self.do("teamctl", "hosts", "--json"))["hosts"]
        return next((row["state"] for row in rows if row["name"] == host), "unknown")

    def has_read(self, name: str, text: str) -> int:
        """Return how often a text occurs in a conversation."""
        transcript = self.project.paths.transcript(name)
        return transcript.read_text().count(text) if transcript.exists() else 0

    @contextmanager
    def broker(self) -> Iterator[None]:
        """Run the broker on the machine during the block."""
        configuration = Broker(Keys(self.project.paths).broker).configuration
        argv = ["ip", "netns", "exec", self.space, find_program(), "-c", str(configuration)]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as server:
            wait_until(configuration.with_name("nats-server.pid").exists)
            try:
                yield
            finally:
                server.kill()


@contextmanager
def machine(folder: Path, space: str, cable: str) -> Iterator[Machine]:
    folder.mkdir()
    with opened(folder) as project:
        yield Machine(project, space, cable)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two empty machines with a cable between them."""
    if not may_make_namespaces():
        pytest.skip("network namespaces need root; test_setup does the same over loopback")
    spaces = [f"teamd-{os.getpid()}-{end}" for end in "ab"]
    cables = [f"td{os.getpid()}{end}" for end in "ab"]
    try:
        for space in spaces:
            ip("netns", "add", space)
        ip("-n", spaces[0], "link", "add", cables[0], "type", "veth", "peer", cables[1])
        ip("-n", spaces[0], "link", "set", cables[1], "netns", spaces[1])
        for space, cable, address in zip(spaces, cables, (NEAR, FAR), strict=True):
            ip("-n", space, "address", "add", f"{address}/24", "dev", cable)
            for link in ("lo", cable):
                ip("-n", space, "link", "set", link, "up")
        with (
            machine(tmp_path / "1", spaces[0], cables[0]) as one,
            machine(tmp_path / "2", spaces[1], cables[1]) as other,
        ):
            yield one, other
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], check=False, timeout=30)


@pytest.mark.slow
def test_hosts_set_up_by_two_commands_exchange_mail_and_survive_a_cut(
    machines: tuple[Machine, Machine],
) -> None:
    one, other = machines
    assert [list(each.project.folder.iterdir()) for each in machines] == [[], []]
    one.do("teamctl", "hosts", "init", "--name", "h1", "--listen", f"{NEAR}:4222", "h2")
    with one.broker():
        carried = other.project.root / "h2.token"
        shutil.copy(Keys(one.project.paths).token("h2"), carried)
        joined = other.run("teamctl", "hosts", "join", str(carried))
        assert (joined.status, joined.stderr) == (0, "")
        for each in machines:
            each.play_nothing()
            each.do("teamd", "start")
        other.do("teamctl", "spawn", "bob", "coder", "Wait for mail.", "--wait")
        wait_until(lambda: one.sees("h2") == "reachable", what="h1 sees h2")

        one.do("teamctl", "send", "bob@project@h2", "Before the cut.")
        wait_until(lambda: other.has_read("bob", "Before the cut."))

        one.plug("down")
        wait_until(lambda: one.sees("h2") == "unreachable", what="h1 sees that h2 is away")
        assert one.shows("h2") == "unreachable"
        sent = one.run("teamctl", "send", "bob@project@h2", "During the cut.")
        assert sent.status == 0
        assert "queued for h2" in sent.stdout + sent.stderr
        wait_until(lambda: other.sees("h1") == "unreachable", what="and h2 that h1 is")
        one.plug("up")
        healed = time.monotonic()
        wait_until(lambda: other.has_read("bob", "During the cut."))
        assert time.monotonic() - healed < HEAL_SECONDS
        one.do("teamctl", "send", "bob@project@h2", "After the cut.")
        wait_until(lambda: other.has_read("bob", "After the cut."))
        texts = ("Before the cut.", "During the cut.", "After the cut.")
        assert [other.has_read("bob", text) for text in texts] == [1, 1, 1]
        for each in machines:
            each.do("teamd", "stop")
