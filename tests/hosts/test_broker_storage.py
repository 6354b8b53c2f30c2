"""Mail arrives once and in order, whatever happens to the broker and its storage."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from teamd.files import locks
from teamd.hosts.outbox import count_waiting
from teamd.hosts.places import HostPlaces
from tests.hosts.towns import Hosts, hosts
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

OTHER = {"h1": "h2", "h2": "h1"}


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path) as made:
        made.start_broker()
        for host, other in OTHER.items():
            made.wait_for(host, other, "reachable")
        yield made


def write(town: Hosts, *contents: str) -> None:
    """Send messages from each host to the person on the other."""
    for host, other in OTHER.items():
        for content in contents:
            town.json(host, "send", f"lead@project@{other}", content)


def settle(town: Hosts) -> None:
    """Wait until both hosts have confirmed all mail."""
    for host, other in OTHER.items():
        paths = town.projects[host].paths
        wait_until(
            lambda: count_waiting(paths, other) == 0,  # noqa: B023
            timeout_seconds=60,
            what=f"{other} has all",
        )


def inbox(town: Hosts, host: str) -> list[str]:
    lines = town.projects[host].paths.inbox("lead").read_text().splitlines()
    return [json.loads(line)["content"] for line in lines]


def keep(_: Path, __: Path) -> None:
    """Leave the storage as it is."""


def delete(store: Path, _: Path) -> None:
    shutil.rmtree(store)


def set_back(store: Path, copy: Path) -> None:
    shutil.rmtree(store)
    shutil.copytree(copy, store)


@pytest.mark.parametrize("change", [keep, delete, set_back])
def test_mail_arrives_once_and_in_order_after_the_broker_is_killed(
    town: Hosts, tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    store, copy = tmp_path / "jetstream", tmp_path / "copy"
    write(town, "1", "2", "3")
    settle(town)
    shutil.copytree(store, copy)
    write(town, "4", "5", "6")
    settle(town)
    write(town, "7")
    town.kill_broker()
    write(town, "8", "9")
    change(store, copy)
    town.start_broker()
    write(town, "10", "11")
    settle(town)
    expected = [str(number) for number in range(1, 12)]
    assert [inbox(town, host) for host in OTHER] == [expected, expected]
    reports = [town.json(host, "hosts")["hosts"][0]["reports"] for host in OTHER]
    assert reports == [[], []]


def test_a_broker_set_back_while_it_held_mail_doubles_nothing(town: Hosts, tmp_path: Path) -> None:
    """The copy holds mail that has arrived since, at a host that was away for a while."""
    store, copy = tmp_path / "jetstream", tmp_path / "copy"
    (pid,) = locks._holders(HostPlaces(town.projects["h2"].paths).postman)
    os.kill(pid, signal.SIGSTOP)
    town.json("h1", "send", "lead@project@h2", "1")
    town.json("h1", "send", "lead@project@h2", "2")
    wait_until(lambda: stored(store) > 0, what="the broker holds it")
    shutil.copytree(store, copy)
    os.kill(pid, signal.SIGCONT)
    settle(town)
    town.json("h1", "send", "lead@project@h2", "3")
    settle(town)
    town.kill_broker()
    set_back(store, copy)
    town.start_broker()
    town.json("h1", "send", "lead@project@h2", "4")
    settle(town)
    assert inbox(town, "h2") == ["1", "2", "3", "4"]


def stored(store: Path) -> int:
    """Return the size of the messages in the stream of mail."""
    found = store.glob("jetstream/*/streams/mail/msgs/*.blk")
    return sum(path.stat().st_size for path in found)


def test_mail_arrives_once_and_in_order_through_kills_of_the_postmen(town: Hosts) -> None:
    expected = list[str]()
    for number in range(4):
        for host in OTHER:
            for pid in locks._holders(HostPlaces(town.projects[host].paths).postman):
                os.kill(pid, signal.SIGKILL)
            expected.append(f"{number} {host}")
            write(town, expected[-1])
    settle(town)
    assert [inbox(town, host) for host in OTHER] == [expected, expected]
