"""Hosts that lose their folder or continue with an old copy of it.

Both sides report what they can know about the loss, and mail that was read is not repeated.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamd.hosts.outbox import count_waiting
from teamd.hosts.places import HostPlaces
from teamd.messages import LEAD
from tests.hosts.towns import Hosts, hosts
from tests.process.campaign.ledger import Ledger
from tests.waiting import wait_until

OTHER = {"h1": "h2", "h2": "h1"}


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Hosts]:
    """Two hosts that reach each other."""
    with hosts(tmp_path) as made:
        made.start_broker()
        meet(made)
        yield made


def meet(town: Hosts) -> None:
    """Wait until both hosts reach each other and all waiting mail has arrived."""
    for host, other in OTHER.items():
        town.wait_for(host, other, "reachable")
        paths = town.projects[host].paths
        wait_until(lambda: count_waiting(paths, other) == 0, what=f"{other} has all")  # noqa: B023


def write(town: Hosts, host: str, *contents: str) -> None:
    """Send messages to the person on the other host."""
    for content in contents:
        town.json(host, "send", f"lead@project@{OTHER[host]}", content)


def read(town: Hosts, host: str) -> Counter[str]:
    """Read all mail as the person; return the messages from the other host."""
    project = town.projects[host]
    project.do("teamctl", "inbox")
    found = Ledger(project, ()).read_by(LEAD)
    assert [one for one in found if one.startswith("About the host")] == [
        f"About the host {other}: {text}."
        for other, text in ((OTHER[host], text) for text in reports(town, host))
    ]
    return Counter(one for one in found if not one.startswith("About the host"))


def reports(town: Hosts, host: str) -> list[str]:
    """Return the reports about the other host that `teamctl hosts` shows."""
    (there,) = town.json(host, "hosts")["hosts"]
    return [one["text"] for one in there["reports"]]


def come_back(town: Hosts, host: str, copy: Path | None) -> None:
    """Stop a host and replace the team's folder by a copy, or by nothing."""
    project = town.projects[host]
    project.do("teamd", "stop")
    shutil.rmtree(project.paths.root)
    if copy is not None:
        shutil.copytree(copy, project.paths.root)


@pytest.mark.slow
def test_both_hosts_report_a_lost_folder_and_mail_continues(town: Hosts) -> None:
    write(town, "h1", "to h2, read there", "to h2, unread there")
    write(town, "h2", "to h1, early")
    meet(town)
    town.kill_broker()
    write(town, "h2", "to h1, never left")
    come_back(town, "h2", None)
    write(town, "h1", "to h2, waited")
    town.projects["h2"].start()
    town.start_broker()
    meet(town)
    write(town, "h1", "to h2, late")
    write(town, "h2", "to h1, late")
    meet(town)
    assert read(town, "h2") == Counter(["to h2, waited", "to h2, late"])
    assert read(town, "h1") == Counter(["to h1, early", "to h1, late"])
    assert reports(town, "h1") == [
        "it has lost its folder: what waited there to be sent, and had not arrived, is gone"
    ]
    assert reports(town, "h2") == [
        "this team's folder is a new one: 2 messages from it came to an earlier one"
    ]


@pytest.mark.slow
def test_both_hosts_report_an_old_copy_and_no_mail_is_duplicated(
    town: Hosts, tmp_path: Path
) -> None:
    write(town, "h1", "to h2, before 1", "to h2, before 2")
    write(town, "h2", "to h1, before 1")
    meet(town)
    shutil.copytree(town.projects["h2"].paths.root, tmp_path / "copy")
    write(town, "h1", "to h2, since 1", "to h2, since 2")
    write(town, "h2", "to h1, since 1", "to h1, since 2")
    meet(town)
    come_back(town, "h2", tmp_path / "copy")
    write(town, "h1", "to h2, while away")
    write(town, "h2", "to h1, before its start")
    town.projects["h2"].start()
    meet(town)
    write(town, "h1", "to h2, late")
    write(town, "h2", "to h1, late")
    meet(town)
    there = ("before 1", "before 2", "while away", "late")
    assert read(town, "h2") == Counter(f"to h2, {one}" for one in there)
    here = ("before 1", "since 1", "since 2", "before its start", "late")
    assert read(town, "h1") == Counter(f"to h1, {one}" for one in here)
    old = "it came back with an old copy of its folder, and what it sent since is unknown"
    wait_until(lambda: reports(town, "h1") == [old], what="h1 reports it")
    assert reports(town, "h2") == ["this team's folder is an old copy: 2 messages from it are gone"]


@pytest.mark.slow
def test_two_hosts_of_one_name_are_reported(town: Hosts, tmp_path: Path) -> None:
    """Both have the same folder, and the other host hears both in turn."""
    with hosts(tmp_path, names=("h3",), started=False) as other:
        twin = other.projects["h3"]
        text = (town.projects["h2"].folder / "team.toml").read_text()
        twin.write("team.toml", text)
        shutil.copytree(HostPlaces(town.projects["h2"].paths).root, HostPlaces(twin.paths).root)
        twin.start()
        wait_until(lambda: any("two hosts have that name" in one for one in reports(town, "h1")))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_copy_that_is_set_back_sends_nothing_again(town: Hosts, tmp_path: Path) -> None:
    """Its outbox held mail that has arrived since.

    The broker drops repeated mail for two minutes, and new mail waits so long for it.
    """
    town.kill_broker()
    write(town, "h2", "1", "2")
    shutil.copytree(town.projects["h2"].paths.root, tmp_path / "copy")
    town.start_broker()
    meet(town)
    write(town, "h2", "3")
    meet(town)
    come_back(town, "h2", tmp_path / "copy")
    town.projects["h2"].start()
    write(town, "h2", "4")
    paths = town.projects["h2"].paths
    wait_until(lambda: count_waiting(paths, "h1") == 0, timeout_seconds=200, what="h1 has all")
    assert read(town, "h1") == Counter(["1", "2", "3", "4"])
