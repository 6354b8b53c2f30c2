"""Three working hosts whose wires are cut and whose processes are killed, all by a seed."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from teamd.files import locks
from teamd.hosts.outbox import count_waiting
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import HostState, read_views
from teamd.messages import LEAD
from teamd.process_id import Identity
from tests.e2e.harness import Project, opened
from tests.hosts.brokers import free_port, plain
from tests.hosts.campaign.power import Power
from tests.hosts.campaign.relay import Relay
from tests.process.campaign import places
from tests.process.campaign.campaign import Campaign, Crew
from tests.process.campaign.ledger import Sent
from tests.process.campaign.places import Place
from tests.waiting import wait_until

TEAM: Final = "project"
CREWS: Final = {
    "h1": ("ann", "abe", "ada", "art"),
    "h2": ("ben", "bea", "bob", "bud"),
    "h3": ("cal", "cay", "cid", "coy"),
}
POWERED: Final = ("h1", "h2")  # hosts with power cuts
# Small, so that confirmed lines are removed from the outbox often.
_SETTINGS: Final = """\
[hosts]
name = "{host}"
servers = ["nats://127.0.0.1:{port}"]
outbox_bytes = 200000
"""
_SETTLE_SECONDS: Final = 120.0
_TRIES: Final = 3  # on each host


@dataclass(slots=True)
class Host:
    """A machine: its folder and home, and its connection to the broker."""

    name: str
    project: Project
    campaign: Campaign
    relay: Relay
    others: tuple[str, ...]
    power: Power | None  # if its power is cut during the test

    @property
    def left(self) -> int:
        """The number of lines that wait for the other hosts."""
        return sum(count_waiting(self.project.paths, other) for other in self.others)

    @property
    def sees_all(self) -> bool:
        """Whether it reaches all other hosts."""
        views = {view.name: view.state for view in read_views(self.project.paths)}
        return all(views.get(other) is HostState.REACHABLE for other in self.others)

    def postman(self) -> Identity | None:
        """Return its postman, if it has one now."""
        path = HostPlaces(self.project.paths).postman
        holders = locks._holders(path) if path.exists() else set()
        return next((Identity.of(pid) for pid in holders), None)


class World:
    """Hosts and their broker, whose disk may be lost or set back at a kill.

    Attributes:
        hosts: by name.
        happened: the counts of wire faults and power cuts.

    Args:
        folder: the folder for all files.
        seed: for all random choices.
        crews: the teammates of each host.
    """

    def __init__(self, folder: Path, seed: str, crews: Mapping[str, Sequence[str]]) -> None:
        self.hosts: dict[str, Host] = {}
        self.happened: Counter[str] = Counter()
        self._folder = folder
        self._seed = seed
        self._chance = random.Random(seed)
        self._crews = crews
        self._stack = ExitStack()
        self._brokers = ExitStack()
        self._port = free_port()
        self._brokers_killed: Counter[str] = Counter()
        self._broker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._stack.push(self._brokers)
        self._start_broker()
        for name in self._crews:
            self.hosts[name] = self._make(name)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def hits(self) -> Counter[Place]:
        """The kills by place."""
        return sum((host.campaign.hits for host in self.hosts.values()), Counter[Place]())

    @property
    def killed(self) -> Counter[str]:
        """The kills by the kind of process."""
        counts = [host.campaign.killed for host in self.hosts.values()]
        return sum(counts, self._brokers_killed)

    def begin(self) -> None:
        """Start the work on all hosts, once all teammates exist and can get mail."""
        for host in self.hosts.values():
            host.campaign.enrol()
        for host in self.hosts.values():
            host.campaign.work()

    def kill(self, wanted: Place) -> None:
        """Kill a process on a host at a place, or elsewhere if none gets to that place."""
        hosts = [host for host in self.hosts.values() if not _leaves_traces(host, wanted)]
        self._chance.shuffle(hosts)
        kill = self._kill_postman if wanted.startswith("postman") else self._kill_member
        if not any(kill(host, wanted) for host in hosts * _TRIES):
            hosts[0].campaign.kill(Place.ELSEWHERE)

    def kill_any_postman(self) -> None:
        """Kill the postman of a random host."""
        host = self._chance.choice([*self.hosts.values()])
        self._kill_postman(host, None)

    @staticmethod
    def _kill_member(host: Host, wanted: Place) -> bool:
        return host.campaign.kill_once(wanted)

    def _kill_postman(self, host: Host, wanted: Place | None) -> bool:
        return host.campaign.killer.kill(
            "postman",
            host.postman,
            lambda pid: places.of_postman(host.project.paths, pid),
            wanted,
        )

    def cut_power(self) -> None:
        """Cut the power of a host, and restart the host."""
        host = self._chance.choice([host for host in self.hosts.values() if host.power])
        assert host.power is not None
        host.campaign.go_down(host.power.cut)
        self.happened["power cut"] += 1

    def kill_broker(self) -> None:
        """Kill the broker, and start it with its disk, with an empty one, or one set back."""
        assert self._broker is not None
        self._broker.kill()
        self._broker.wait()
        store, saved = self._folder / "jetstream", self._folder / "jetstream-before"
        how = self._chance.choice(("kept", "wiped", "set back"))
        if how == "kept" or not saved.exists():
            how = "kept"
            shutil.rmtree(saved, ignore_errors=True)
            shutil.copytree(store, saved)
        else:
            shutil.rmtree(store)
            if how == "set back":
                shutil.copytree(saved, store)
        self._start_broker()
        self.happened[f"broker {how}"] += 1
        self._brokers_killed["broker"] += 1

    def freeze_broker(self, *, frozen: bool) -> None:
        """Stop the broker, which leaves all connections half-open, or continue it."""
        assert self._broker is not None
        self._broker.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def settle(self) -> None:
        """Repair all wires, wait until all teammates are idle, and read all mail."""
        hosts = self.hosts.values()
        for host in hosts:
            host.campaign.hush()
        wait_until(lambda: all(host.sees_all for host in hosts), timeout_seconds=30, what="sight")
        while True:  # arriving mail wakes its receivers
            wait_until(
                lambda: not any(host.left for host in hosts),
                timeout_seconds=_SETTLE_SECONDS,
                what="all has crossed",
            )
            for host in hosts:
                host.campaign.rest(_SETTLE_SECONDS)
            if not any(host.left for host in hosts):
                break
        for host in hosts:
            host.campaign.read()

    def acknowledged(self) -> set[Sent]:
        """Return all messages that were acknowledged to their senders, by full address."""
        return {
            (_full(to, host.name), content)
            for host in self.hosts.values()
            for to, content in host.campaign.ledger.acknowledged()
        }

    def delivered(self) -> Counter[Sent]:
        """Return how often each message occurs in its receiver's conversation."""
        return Counter(
            {
                (_full(name, host.name), content): times
                for host in self.hosts.values()
                for (name, content), times in host.campaign.ledger.delivered().items()
            }
        )

    def crossed(self) -> int:
        """Return the number of acknowledged messages to other hosts."""
        far = {
            (to, content)
            for host in self.hosts.values()
            for to, content in host.campaign.ledger.acknowledged()
            if "@" in to
        }
        return len(far)

    def reports(self) -> list[str]:
        """Return reports of unresolved problems: no kill or cut may cause any."""
        views = (view for host in self.hosts.values() for view in read_views(host.project.paths))
        return [f"{view.name}: {one.text}" for view in views for one in view.reports]

    def out_of_order(self) -> list[str]:
        """Return messages that follow a later one of their sender, in one conversation."""
        return [
            found
            for host in self.hosts.values()
            for name in (*self._crews[host.name], LEAD)
            for found in find_out_of_order(host.campaign.ledger.read_by(name))
        ]

    def _make(self, name: str) -> Host:
        others = tuple(other for other in self._crews if other != name)
        far = [f"{to}@{TEAM}@{host}" for host in others for to in (*self._crews[host], LEAD)]
        (self._folder / name).mkdir()
        project = self._stack.enter_context(opened(self._folder / name))
        relay = self._stack.enter_context(Relay(self._port))
        crew = Crew(
            names=tuple(self._crews[name]),
            far=tuple(far),
            host=name,
            settings=_SETTINGS.format(host=name, port=relay.port) + _allow(others),
            senders=1,
            pause_seconds=0.15,
            rests=0.5,
        )
        campaign = Campaign(project, f"{self._seed} {name}", crew)
        power = None
        if name in POWERED:
            campaign.prepare()
            power = Power(project, random.Random(f"{self._seed} {name} power"))
            campaign.killer.between = power.between
        return Host(name, project, campaign, relay, others, power)

    def _start_broker(self) -> None:
        self._broker = self._brokers.enter_context(plain(self._folder, self._port))


def find_out_of_order(contents: Sequence[str]) -> list[str]:
    """Return the messages of a conversation that follow a later one; each ends in `-NUMBER`."""
    last: dict[str, int] = {}
    found = []
    for content in contents:
        sender, _, number = content.rpartition("-")
        if not number.isdecimal():
            continue
        if int(number) < last.get(sender, 0):
            found.append(content)
        last[sender] = int(number)
    return found


def _leaves_traces(host: Host, wanted: Place) -> bool:
    """Return whether the test itself would write into a folder with recorded writers."""
    return host.power is not None and wanted is Place.DRAIN


def _allow(others: Sequence[str]) -> str:
    """Return settings that name the other hosts, so that they are known before they connect."""
    names = ", ".join(f'"{other}"' for other in others)
    return f"allow = {{ spawn = [{names}] }}\n"


def _full(to: str, host: str) -> str:
    return to if "@" in to else f"{to}@{TEAM}@{host}"
