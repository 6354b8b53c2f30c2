"""Hosts that lose their folder or continue with an old copy of it.

Both sides report what they can know about the loss, and mail that was read is not repeated.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamd.hosts.view import read_views, waiting
from teamd.messages import LEAD
from tests.hosts.towns import Hosts, hosts
from tests.process.campaign.ledger import Ledger
from tests.waiting import wait_until

OTHER = {"h1": "h2", "h2": "h1"}
SMALL = "outbox_bytes = 4096"  # small, so that confirmed lines are soon removed from the outbox
LONG = " It is long." * 50


@pytest.fixture
def town(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Two hosts that reach each other."""
    with hosts(tmp_path, allow=getattr(request, "param", "")) as made:
        made.start_broker()
        meet(made)
        yield made


def meet(town: Hosts) -> None:
    """Wait until both hosts reach each other and all waiting mail has arrived."""
    for host, other in OTHER.items():
        town.wait_for(host, other, "reachable")
        paths = town.projects[host].paths
        wait_until(lambda: waiting(paths, other) == 0, what=f"{other} has all")  # noqa: B023


def write(town: Hosts, host: str, *contents: str) -> None:
    """Send messages to the person on the other host."""
    for content in contents:
        town.json(host, "send", f"lead@project@{OTHER[host]}", content)


def read(town: Hosts, host: str) -> Counter[str]:
    """Read all mail as the person; return the messages from the other host."""
    project = town.projects[host]
    project.do("teamctl", "inbox")
    contents = Ledger(project, ()).read_by(LEAD)
    return Counter(one for one in contents if not one.startswith("About the host"))


def told(town: Hosts, host: str) -> list[str]:
    """Return the reports about the other host that the person got by mail."""
    contents = Ledger(town.projects[host], ()).read_by(LEAD)
    start = f"About the host {OTHER[host]}: "
    return [one.removeprefix(start).rstrip(".") for one in contents if one.startswith(start)]


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
    near = [
        "it has lost its folder: 2 messages that it had are gone with it",
        "it has lost its folder: what waited there to be sent, and had not arrived, is gone",
    ]
    far = [
        "it knows an earlier folder of this team: what waited there is gone",
        "this team's folder is a new one: 2 messages from it came to an earlier one",
    ]
    assert sorted(reports(town, "h1")) == sorted(told(town, "h1")) == near
    assert sorted(reports(town, "h2")) == sorted(told(town, "h2")) == far


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
    there = ("before 1", "before 2", "since 1", "since 2", "while away", "late")
    assert read(town, "h2") == Counter(f"to h2, {one}" for one in there)
    here = ("before 1", "since 1", "since 2", "before its start", "late")
    assert read(town, "h1") == Counter(f"to h1, {one}" for one in here)
    assert reports(town, "h1") == told(town, "h1")
    assert reports(town, "h2") == told(town, "h2")
    assert "it is an old copy of its folder: 2 messages are sent again" in reports(town, "h1")
    came_back = "it came back with an old copy of its folder, and begins anew, or "
    assert any(one.startswith(came_back) for one in reports(town, "h1"))
    assert any(one.startswith("this team's folder is an old copy: ") for one in reports(town, "h2"))


@pytest.mark.slow
@pytest.mark.parametrize("town", [SMALL], indirect=True)
def test_both_hosts_count_the_messages_that_an_old_copy_has_lost(
    town: Hosts, tmp_path: Path
) -> None:
    write(town, "h1", "to h2, before")
    meet(town)
    shutil.copytree(town.projects["h2"].paths.root, tmp_path / "copy")
    for number in range(8):
        write(town, "h1", f"{number}{LONG}")
        meet(town)
    come_back(town, "h2", tmp_path / "copy")
    town.projects["h2"].start()
    write(town, "h1", "to h2, late")
    meet(town)
    got = read(town, "h2")
    assert set(got.values()) == {1}
    assert got["to h2, late"] == 1
    gone = 8 - sum(one.endswith(LONG) for one in got)
    assert gone > 0
    assert f"this team's folder is an old copy: {gone} messages from it are gone" in reports(
        town, "h2"
    )
    assert f"it is an old copy of its folder: {gone} messages that it had are gone" in reports(
        town, "h1"
    )
    assert read_views(town.projects["h1"].paths)[0].reports, "kept where faces read it"
