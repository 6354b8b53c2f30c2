"""Views of other hosts rest on data from those hosts, which may be anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teamd.errors import NotAMessage
from teamd.files.paths import TeamPaths
from teamd.hosts import rosters
from teamd.hosts.far import FarHosts
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarMember, FarRoster
from teamd.hosts.view import HostState, HostView, Report, Views, read_views
from teamd.settings.schema import HostSettings
from teamd.team.states import Status

OFFLINE = "nothing listens at nats://h9:4222; does the broker run there?"
BOB = {"name": "bob", "role": "coder", "status": "idle", "age": 1.0}
MOMENT = 1_700_000_000.0


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    made.create()
    HostPlaces(made).create()
    return made


@pytest.fixture
def views(paths: TeamPaths) -> Views:
    return Views(paths)


@pytest.mark.parametrize(
    "told",
    [
        {"team": "project", "members": [{**BOB, "name": "../bob"}]},
        {"team": "project", "members": [{**BOB, "name": "\x1b[31mbob"}]},
        {"team": "project", "members": [{**BOB, "role": 7}]},
        {"team": "project", "members": [{**BOB, "status": "dancing"}]},
        {"team": "project", "members": [BOB, "carol"]},
        {"team": "no team", "members": [BOB]},
        {"team": "project", "members": [BOB], "left_out": "many"},
        {"members": [BOB]},
    ],
)
def test_a_roster_of_impossible_names_or_counts_is_refused(told: dict[str, Any]) -> None:
    """A name is part of an address, and is drawn on the person's terminal."""
    with pytest.raises(NotAMessage):
        FarRoster.decode(told, MOMENT)


@pytest.mark.parametrize("content", [b"", b"{", b'{"team": "project"}', b'{"team": "a b"}'])
def test_a_stored_roster_that_cannot_be_decoded_counts_as_missing(
    paths: TeamPaths, content: bytes
) -> None:
    """The next one arrives within seconds; until then no command fails because of it."""
    path = HostPlaces(paths).roster("h2")
    bob = FarMember(name="bob", role="coder", status=Status.IDLE)
    rosters.keep(path, FarRoster(team="project", members=(bob,)))
    kept = rosters.read(path)
    assert kept is not None
    assert kept.find("BOB") is not None
    path.write_bytes(content)
    assert rosters.read(path) is None


@pytest.mark.parametrize(
    "told",
    [None, "reachable", {"state": "reachable"}, {"state": 1, "since": 1.0},
     {"state": "reachable", "since": "yesterday"}, {"state": "gone", "since": None}],
)  # fmt: skip
def test_an_invalid_view_of_a_host_is_shown_as_never_seen(told: Any) -> None:
    assert HostView.from_json("h2", told) == HostView(name="h2", state=HostState.NEVER)


def test_only_reports_with_a_time_and_a_text_are_shown() -> None:
    said = [{"time": "now", "text": "x"}, {"time": 2, "text": "7 are gone"}, {"time": 3}, "x"]
    found = HostView.from_json("h2", {"state": "never", "since": None, "reports": said})
    assert found.reports == (Report(2, "7 are gone"),)


def test_a_forgotten_host_is_no_longer_shown_and_others_stay(views: Views) -> None:
    for name in ("h2", "h3"):
        views.change(name, state=HostState.REACHABLE, since=MOMENT)
    views.write()
    state = HostPlaces(views.paths).state
    before = state.stat().st_ino
    views.forget("h9")
    views.write()
    assert state.stat().st_ino == before, "nothing is written for one that nobody knew"
    views.forget("h2")
    views.write()
    assert [one.name for one in read_views(views.paths)] == ["h3"]


def test_without_a_host_name_there_are_no_other_hosts(paths: TeamPaths) -> None:
    """Servers alone are half a setup: no mail is written to an outbox without a reader."""
    servers = ("nats://127.0.0.1:1",)
    assert FarHosts.of(paths, HostSettings(servers=servers), durable=False) is None
    found = FarHosts.of(paths, HostSettings(name="h1", servers=servers), durable=False)
    assert found is not None
    assert found.name == "h1"
