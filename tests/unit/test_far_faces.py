"""Other hosts on the screen: tables at any width, a view with its age, and a model's tools."""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from teamctl.doctor import Level
from teamctl.doctor.hosts import check_hosts
from teamctl.hosts.broker import Broker, BrokerRecord, render_configuration
from teamctl.render import host_table, roster_table, tables
from teamctl.render.host_table import note_lines
from teamd.agent.conversation.prompts import system_prompt
from teamd.agent.delivery import is_idle_talk
from teamd.clocks import time_of_day
from teamd.files import files, locks, pidfile
from teamd.files.paths import TeamPaths
from teamd.hosts import rosters
from teamd.hosts.far import FarHosts
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces, needs_renewal
from teamd.hosts.rosters import FarMember, FarRoster
from teamd.hosts.view import HostState, Report, Views, read_views
from teamd.masking import Mask
from teamd.messages import Message
from teamd.postman.process import live
from teamd.settings import Settings
from teamd.settings.schema import HostSettings
from teamd.team.roster import Roster
from teamd.team.states import ChildExit, Status
from teamd.tools import Toolbox
from teamd.tools.lead import ListTeammates
from teamd.transcript.records import Opened
from tests.unit.life import enrol

HOSTS = HostSettings(name="h1", servers=("nats://127.0.0.1:1",))


@pytest.fixture
def now() -> float:
    return time.time()


@pytest.fixture
def paths(tmp_path: Path, now: float) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    enrol(made, alice=Status.WORKING)
    places = HostPlaces(made)
    places.create()
    views = Views(made)
    views.change("h2", state=HostState.REACHABLE, since=now - 3690, round_trip_ms=3.14159)
    views.change("h3", state=HostState.UNREACHABLE, since=now - 7230, why="the wire is cut")
    views.report("h3", Report(now - 3690, "7 messages from it are gone"))
    views.write()
    for host, name in (("h2", "bob"), ("h3", "carol-of-the-long-name")):
        member = FarMember(name=name, role="tester", status=Status.IDLE, since=now - 10_830)
        roster = FarRoster(team="project", members=(member,), left_out=int(host == "h3"))
        rosters.keep(places.roster(host), roster)
    Outbox(made, "h3", durable=False).append(to="carol", team="project", message={})
    return made


@pytest.fixture
def hosts(paths: TeamPaths) -> FarHosts:
    return FarHosts(paths, "h1", durable=False)


@pytest.fixture
def postman(paths: TeamPaths) -> Iterator[None]:
    files.append(HostPlaces(paths).postman, b"", durable=False)
    with locks.locked(HostPlaces(paths).postman):
        yield


def drawn(shown: tables.FittedTable, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(shown)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def rows_of(hosts: FarHosts) -> list[Any]:
    return [
        row
        for host in host_table.read_hosts(hosts, "project")
        for row in host_table.member_cells(host, roster_table.HEADINGS)
    ]


@pytest.mark.usefixtures("postman")
@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_of_hosts_fits_and_shows_the_state_of_each(hosts: FarHosts, width: int) -> None:
    rows = [host_table.host_cells(row) for row in host_table.read_hosts(hosts, "project")]
    shape, numbers = host_table.SHAPE, host_table.NUMBERS
    shown = drawn(tables.FittedTable(host_table.HEADINGS, rows, numbers, shape), width)
    assert max(map(len, shown)) <= width
    assert all(word in shown[0] for word in ("HOST", "STATE", "WAITING"))
    assert shown[1].split()[:2] == ["h2", "reachable"]
    assert shown[2].split()[:2] == ["h3", "unreachable"]
    if width == 200:
        assert shown[1].split() == ["h2", "reachable", "1h01m", "0", "3.1ms", "-"]
        assert shown[2].split()[2:5] == ["2h00m", "1", "-"]
        assert shown[2].endswith("the wire is cut")


@pytest.mark.usefixtures("postman")
def test_reports_about_this_host_are_shown(hosts: FarHosts) -> None:
    """A second machine with its name: the other hosts see it, and this one must, too."""
    views = Views(hosts.paths)
    views.report("h1", Report(time.time(), "two hosts have that name"))
    views.write()
    told = [text for text, _ in host_table.note_lines(hosts, [])]
    assert told == ["h1 (this host): 0s ago: two hosts have that name"]
    found = [one.what for one in check_hosts(Settings(hosts=HOSTS), hosts.paths)]
    assert "h1 (this host): two hosts have that name" in found


@pytest.mark.usefixtures("postman")
@pytest.mark.parametrize("width", [40, 80, 200])
def test_members_of_other_hosts_are_listed_and_never_shown_as_failed(
    hosts: FarHosts, width: int
) -> None:
    shown = drawn(roster_table.roster_table(rows_of(hosts)), width)
    assert max(map(len, shown)) <= width
    assert shown[1].startswith("bob@project@h2 ")
    assert " idle" in shown[1]
    assert shown[2].startswith("carol-of-the-long-")
    assert " unreachable" in shown[2]
    if width > 40:
        assert " 3h00m" in shown[1]
        assert " 2h00m" in shown[2], "since it was heard of last"


@pytest.mark.usefixtures("postman")
def test_the_notes_show_absences_waiting_lines_and_lost_messages(
    hosts: FarHosts, now: float
) -> None:
    said = [
        text for text, _ in host_table.note_lines(hosts, host_table.read_hosts(hosts, "project"))
    ]
    assert said == [
        f"h3: unreachable since {time_of_day(now - 7230)} (the wire is cut); 1 line waits for it",
        "h3: 1 more are not listed",
        "h3: 1h01m ago: 7 messages from it are gone",
    ]


def test_without_a_postman_no_host_counts_as_reachable(hosts: FarHosts) -> None:
    far = host_table.read_hosts(hosts, "project")
    found = {row.view.name: (row.view.state, row.view.why) for row in far}
    assert found["h2"] == (HostState.UNREACHABLE, "no postman runs here")
    first, *_ = (text for text, _ in host_table.note_lines(hosts, far))
    assert first.startswith("no postman runs here, so mail to other hosts waits")
    assert far[0].to_json().keys() >= {"name", "state", "since", "waiting", "round_trip_ms"}


@pytest.mark.usefixtures("postman")
def test_the_doctor_shows_since_when_and_why(paths: TeamPaths) -> None:
    found = list(check_hosts(Settings(hosts=HOSTS), paths))
    said = {one.what: one.level for one in found}
    assert said["h2 is reachable (3.1 ms)"] is Level.OK
    (away,) = [what for what in said if what.startswith("h3: unreachable since ")]
    assert away.endswith("(the wire is cut); 1 line for it")
    assert said["h3: 7 messages from it are gone"] is Level.NOTE
    assert list(check_hosts(Settings(), paths)) == []


def test_a_new_postman_marks_all_hosts_unreachable_before_it_takes_its_lock(
    paths: TeamPaths,
) -> None:
    """It fails early here, because a folder is in place of its lock."""
    HostPlaces(paths).postman.mkdir()
    assert live(paths, Settings(hosts=HOSTS), Mask()) == ChildExit.IO
    seen = {one.name: one.state for one in read_views(paths)}
    assert seen == {"h2": HostState.UNREACHABLE, "h3": HostState.UNREACHABLE}


def test_the_doctor_reports_a_teamd_without_its_postman(paths: TeamPaths) -> None:
    claim = pidfile.claim(paths)
    try:
        found = list(check_hosts(Settings(hosts=HOSTS), paths))
    finally:
        locks.release(claim)
        os.close(claim)
    assert any("teamd runs and its postman does not" in one.what for one in found)
    (servers, *_) = check_hosts(Settings(hosts=HostSettings(name="h1")), None)
    assert "[hosts] has a name and no servers" in servers.what


def test_a_broker_without_jetstream_is_reported_until_it_is_renewed(paths: TeamPaths) -> None:
    told = "the broker's configuration is of an earlier version, so mail to other hosts waits"
    remedy = "run `teamctl hosts init --renew`, then restart the broker"
    configuration = HostPlaces(paths).keys / "broker" / "nats-server.conf"
    assert not needs_renewal(paths)
    configuration.parent.mkdir(parents=True)
    configuration.write_text('# A plain router\nlisten: "0.0.0.0:4222"\n')
    assert needs_renewal(paths)
    found = {one.what: one for one in check_hosts(Settings(hosts=HOSTS), paths)}
    assert (found[told].level, found[told].remedy) == (Level.FAIL, remedy)
    notes = [text for text, _ in note_lines(FarHosts(paths, "h1"), [])]
    assert f"{told}; {remedy}" in notes
    record = BrokerRecord(id="x", listen="0.0.0.0:4222", addresses=("h1",), teams={})
    configuration.write_text(render_configuration(Broker(configuration.parent), record))
    assert not needs_renewal(paths)


@pytest.mark.usefixtures("postman")
def test_a_lead_agent_sees_members_of_other_hosts(hosts: FarHosts) -> None:
    tool = ListTeammates(Roster(hosts.paths), "lead", hosts)
    lines = asyncio.run(Toolbox([tool]).run("list_teammates", {})).text.splitlines()
    assert lines[0].startswith("alice (")
    assert "bob@project@h2 (tester): idle" in lines
    assert lines[-1].startswith("carol-of-the-long-name@project@h3 (tester): unreachable since ")


def test_the_system_prompt_mentions_other_hosts_only_if_there_are_any(tmp_path: Path) -> None:
    opened = Opened(name="bob", role="coder", team="web")
    alone = system_prompt(opened, workspace=tmp_path)
    told = system_prompt(opened, workspace=tmp_path, host="h1")
    assert "host" not in alone
    assert told.startswith(alone)
    assert "this one is 'h1'" in told
    assert "name@web@host" in told
    assert "name branch and commit" in told


@pytest.mark.parametrize(
    ("sender", "idle"),
    [
        ("bob@project@h2", True), ("lead@project@h2", False), ("user@project@h2", False),
        ("CI job@project@h2", True), ("bob@not a team", False),
    ],
)  # fmt: skip
def test_talk_between_hosts_counts_as_talk(paths: TeamPaths, sender: str, *, idle: bool) -> None:
    """Two agents that thank each other endlessly cost the same on two hosts."""
    message = Message(sender=sender, to="alice", content="Thanks!")
    assert is_idle_talk([message], Roster(paths)) is idle
