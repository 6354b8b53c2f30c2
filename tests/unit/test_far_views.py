"""Views of other hosts rest on data from those hosts, which may be anything."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from teamd.errors import NotAMessage
from teamd.files.paths import TeamPaths
from teamd.hosts import rosters
from teamd.hosts.cursor import Cursor, CursorFile
from teamd.hosts.far import FarHosts
from teamd.hosts.lines import MAIL
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarMember, FarRoster
from teamd.hosts.view import HostState, HostView, Report, Views, read_views
from teamd.postman.faces import DEAF, show_host
from teamd.postman.outgoing import Outgoing
from teamd.postman.presence import SILENT_SECONDS, HostPresence, Peer
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


def peer(heard: float = 100.0) -> Peer:
    return Peer(heard, MOMENT, boot="b", session="s")


def seen(views: Views, name: str = "h2") -> tuple[HostState, str]:
    """Return the state that a host is shown in."""
    views.write()
    (found,) = [one for one in read_views(views.paths) if one.name == name]
    return found.state, found.why


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


def test_a_cursor_with_a_wrong_digest_is_ignored(
    tmp_path: Path,
) -> None:
    """It would confirm lines that never arrived."""
    file = CursorFile(tmp_path / "h2.json", durable=False)
    for n in (4, 5):
        file.write(Cursor("e", n, "c"))
    content = file.path.read_bytes()
    file.path.write_bytes(content.replace(b'"n": 5', b'"n": 9'))
    assert CursorFile(file.path, durable=False).read() == Cursor("e", 4, "c")


def test_a_host_is_unreachable_since_its_last_beat_and_the_reason_follows_the_broker(
    views: Views,
) -> None:
    """The broker may fail after the host did: the reason is current, the time is not."""
    show_host(views, "h2", peer(), 100.0, offline="", deaf=DEAF)
    assert seen(views) == (HostState.REACHABLE, "")
    late = 100.0 + SILENT_SECONDS
    show_host(views, "h2", peer(), late, offline="", deaf=DEAF)
    assert seen(views) == (HostState.UNREACHABLE, "it is silent")
    assert views.get("h2").since == MOMENT
    show_host(views, "h2", peer(), late, offline=OFFLINE, deaf=DEAF)
    assert seen(views) == (HostState.UNREACHABLE, OFFLINE)
    show_host(views, "h2", peer(), late, offline="", deaf=DEAF)
    assert seen(views) == (HostState.UNREACHABLE, "it is silent")
    assert views.get("h2").since == MOMENT


def test_a_host_that_does_not_hear_this_one_is_shown_as_deaf(views: Views) -> None:
    hears = peer()
    show_host(views, "h2", hears, 100.0, offline="", deaf=DEAF)
    hears.heard, hears.moment = 200.0, MOMENT + 100.0  # and `answered` keeps its old value
    show_host(views, "h2", hears, 200.0, offline="", deaf=DEAF)
    assert seen(views) == (HostState.UNREACHABLE, DEAF)
    assert views.get("h2").since == MOMENT + 100.0


def test_a_host_last_seen_by_an_earlier_postman_is_unreachable_from_now_on(
    views: Views,
) -> None:
    begun = time.time()
    views.change("h2", state=HostState.REACHABLE, since=MOMENT, round_trip_ms=3.0)
    show_host(views, "h2", None, 100.0, offline="", deaf=DEAF)
    assert seen(views) == (HostState.UNREACHABLE, "it is silent")
    since = views.get("h2").since
    assert since is not None
    assert since >= begun
    assert views.get("h2").round_trip_ms is None


@pytest.mark.parametrize("offline", ["", OFFLINE])
def test_a_host_that_was_never_heard_from_is_not_reported_as_gone(
    views: Views, offline: str
) -> None:
    """The name in the settings may never have existed, so silence proves nothing."""
    show_host(views, "h2", None, 100.0, offline=offline, deaf=DEAF)
    assert seen(views) == (HostState.NEVER, offline)
    kept = json.loads(HostPlaces(views.paths).state.read_text())["hosts"]["h2"]
    assert kept["since"] is None


def beat(presence: HostPresence, now: float) -> bytes:
    """Return a beat of a host at a moment of its own clock."""
    return next(iter(presence.due(now, MOMENT)))


def test_a_host_that_has_rebooted_has_another_clock() -> None:
    """With the old offset of its clock since boot, a late request would count as timely."""
    one = HostPresence("h1", "b1", FarRoster(team="project"))
    before, after = (HostPresence("h2", boot, FarRoster(team="project")) for boot in ("b2", "b3"))
    for number in range(3):
        moment = 2.0 * number
        one.heard("h2", beat(before, 9000.0 + moment), 10.0 + moment, MOMENT)
        before.heard("h1", beat(one, 10.0 + moment), 9000.5 + moment, MOMENT)
    assert one.left("h2", "b2", 9100.0, 16.0) is not None
    one.heard("h2", beat(after, 5.0), 17.0, MOMENT)
    assert one.left("h2", "b2", 9100.0, 17.0) == 0.0, "that boot is over"
    assert one.left("h2", "b3", 9100.0, 17.0) is None, "its clock is not known yet"


def test_at_most_a_thousand_hosts_are_tracked_if_a_broker_invents_names() -> None:
    one = HostPresence("h1", "b1", FarRoster(team="project"))
    said = beat(HostPresence("h2", "b2", FarRoster(team="project")), 5.0)
    for number in range(2, 1100):
        one.heard(f"h{number}", said, 10.0, MOMENT)
    assert len(one.peers) == 1000
    one.heard("h2", said, 12.0, MOMENT)
    assert one.peers["h2"].heard == 12.0
    one.forget_roster("h1099")
    assert "h1099" not in one.peers


@pytest.mark.parametrize("content", [b"", b'{"epoch": "e", "fir'])
def test_an_outbox_without_a_whole_line_has_nothing_to_offer(
    paths: TeamPaths, content: bytes
) -> None:
    """Its first sender was killed there, or is about to write; the file is not damaged."""
    outbox = Outbox(paths, "h2", durable=False)
    outbox.path.write_bytes(content)
    cursor = CursorFile(HostPlaces(paths).confirmed("h2"), durable=False)
    outgoing = Outgoing(outbox, cursor, report=print)
    assert not outgoing.look()
    assert outgoing.is_current
    assert outgoing.offer() is None
    assert outbox.append(MAIL, to="bob", message={"id": "1"}) == 1
    assert outgoing.look()
    offer = outgoing.offer()
    assert offer is not None
    assert offer.last == 1
    outgoing.close()
