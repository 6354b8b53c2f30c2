"""Ten hosts with a hundred teammates each on one machine: the largest supported team."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psutil
import pytest

from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import Outbox, count_waiting
from teamd.hosts.view import HostState, read_views
from teamd.messages import Message
from tests.bench.ruler import median, percentile
from tests.hosts import bare
from tests.hosts.brokers import Town
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.alone]

HOSTS: Final = tuple(f"h{number}" for number in range(1, 11))
NAMES: Final = tuple(f"m{number}" for number in range(100))
RATE: Final = 170.0  # messages a second in total
SENDERS: Final = 8
SECONDS: Final = float(os.environ.get("TEAMD_HOSTS_SECONDS", "600"))
TEXT: Final = "The parser is done on branch parse, commit 1f3c9a2; please look at it. " * 3


class Fair:
    """Ten hosts with a postman each on one broker, and one program that reads all inboxes."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        town = Town.found(folder, {"project": HOSTS})
        stack.enter_context(town.open())
        self.teams = {host: TeamPaths(folder / host / ".team") for host in HOSTS}
        for paths in self.teams.values():
            paths.root.parent.mkdir()
            paths.create()
            members = [{"name": name, "role": "coder", "status": "idle"} for name in NAMES]
            paths.config.write_text(json.dumps({"team_name": "project", "members": members}))
        self.log = folder / "read"
        argv = [sys.executable, "-m", "tests.hosts.inbox_readers"]
        with self.log.open("wb") as log:
            roots = [str(paths.root) for paths in self.teams.values()]
            self._run(stack, [*argv, *roots], stdout=log)
        wait_until(lambda: self.log.read_bytes() == b"reading\n", what="they read")
        program = [sys.executable, "-m", "tests.hosts.postman_program"]
        self.postmen = [
            self._run(stack, [*program, str(paths.root), host, *connection])
            for host, paths in self.teams.items()
            for connection in [bare.arguments(town.server, town.issue("project", host))]
        ]

    def _run(self, stack: ExitStack, argv: list[str], **options: object) -> subprocess.Popen[bytes]:
        begun = stack.enter_context(subprocess.Popen(argv, **options))  # type: ignore[call-overload]
        stack.callback(begun.kill)
        return begun  # type: ignore[no-any-return]

    @property
    def met(self) -> bool:
        """Whether each host reaches all the others."""
        views = [read_views(paths) for paths in self.teams.values()]
        there = (sum(view.state is HostState.REACHABLE for view in seen) for seen in views)
        return all(count == len(HOSTS) - 1 for count in there)

    @property
    def left(self) -> int:
        """The number of waiting lines."""
        return sum(
            count_waiting(paths, other)
            for host, paths in self.teams.items()
            for other in HOSTS
            if other != host
        )

    def send(self, number: int) -> tuple[str, str]:
        """Send a message from one host to another; return its sender and number."""
        chance = random.Random(number)
        host, other = chance.sample(HOSTS, 2)
        sender, to = chance.choice(NAMES), chance.choice(NAMES)
        content = f"{number} {time.monotonic()} {TEXT}"
        message = Message(sender=sender, to=to, content=content).to_json()
        del message["to"]
        Outbox(self.teams[host], other).append(to=to, team="project", message=message)
        return f"{sender}@project@{host}", str(number)

    def arrived(self) -> list[list[str]]:
        """Return a line for each message that was read: sender, number, inbox, milliseconds."""
        return [line.split() for line in self.log.read_text().splitlines()[1:]]


@pytest.fixture
def fair(tmp_path: Path) -> Iterator[Fair]:
    with ExitStack() as stack:
        made = Fair(tmp_path, stack)
        wait_until(lambda: made.met, timeout_seconds=60, what="all see all")
        yield made


@pytest.mark.timeout(SECONDS + 300)
def test_a_thousand_teammates_on_ten_hosts_exchange_mail_without_loss(fair: Fair) -> None:
    begun = time.monotonic()
    sending: list[Future[tuple[str, str]]] = []
    with ThreadPoolExecutor(SENDERS) as senders:  # each waits for the disk
        while (now := time.monotonic()) < begun + SECONDS:
            due = begun + len(sending) / RATE
            if now < due:
                time.sleep(due - now)
            sending.append(senders.submit(fair.send, len(sending)))
    sent = [one.result() for one in sending]
    took = time.monotonic() - begun
    wait_until(lambda: fair.left == 0, timeout_seconds=60, what="all has crossed")
    wait_until(lambda: len(fair.arrived()) >= len(sent), what="all is read")
    arrived = fair.arrived()
    late = [float(line[3]) for line in arrived]
    used = [psutil.Process(one.pid).cpu_times() for one in fair.postmen]
    share = sum(one.user + one.system for one in used) / took
    memory = [psutil.Process(one.pid).memory_full_info().pss / 2**20 for one in fair.postmen]
    counts = Counter((sender, number) for sender, number, *_ in arrived)
    print(  # noqa: T201 -- the figure
        f"\n{len(sent)} messages in {took:.0f} s, {len(sent) / took:.0f}/s: "
        f"{len(set(sent) - set(counts))} lost, "
        f"{sum(times > 1 for times in counts.values())} twice; p50 {median(late):.1f} ms, "
        f"p99 {percentile(late, 0.99):.1f} ms; a postman {max(memory):.1f} MiB at most; "
        f"all of them {share:.2f} of a core; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    assert counts == Counter(sent)
    assert max(memory) < 50
    assert percentile(late, 0.99) < 100
