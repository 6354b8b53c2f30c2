"""Presence of hosts, over a wire that may lose, delay and repeat messages."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from teamd.errors import NotAMessage
from teamd.hosts.rosters import MOST, FarMember, FarRoster
from teamd.postman.presence import BEAT_SECONDS, SILENT_SECONDS, HostPresence
from teamd.team.member import Member
from teamd.team.roster import Team
from teamd.team.states import Status

MOMENT = 1_700_000_000.0


def roster(*names: str, status: Status = Status.IDLE) -> FarRoster:
    members = [FarMember(name=name, role="coder", status=status, since=MOMENT) for name in names]
    return FarRoster(team="project", members=tuple(members))


@dataclass
class Host:
    """A host whose clock is offset and runs slightly fast or slow."""

    name: str
    ahead: float = 0.0
    rate: float = 1.0
    presence: HostPresence = field(init=False)
    learnt: dict[str, FarRoster] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.presence = HostPresence(self.name, f"boot of {self.name}", roster(f"{self.name}-bob"))

    def clock(self, true: float) -> float:
        """Return its clock at a moment of true time."""
        return self.ahead + true * self.rate

    def says(self, true: float) -> list[bytes]:
        """Return the frames that it publishes."""
        return list(self.presence.due(self.clock(true), MOMENT + true))

    def hears(self, other: Host, payload: bytes, true: float) -> None:
        """Let it receive a frame from another host."""
        moment = MOMENT + true
        found = self.presence.heard(other.name, payload, self.clock(true), moment)
        if found is not None:
            self.learnt[other.name] = found


def exchange(one: Host, other: Host, *, start: float, seconds: float, there: bool = True) -> float:
    """Let time pass with a working or a broken wire."""
    true = start
    while true < start + seconds:
        for sender, receiver in ((one, other), (other, one)):
            for payload in sender.says(true):
                if there:
                    receiver.hears(sender, payload, true)
        true += 0.25
    return true


def test_two_hosts_know_each_others_members_within_two_beats() -> None:
    one, other = Host("h1"), Host("h2", ahead=90_000.0)
    exchange(one, other, start=10.0, seconds=2 * BEAT_SECONDS)
    assert one.learnt["h2"].version == other.presence.roster.version
    assert other.learnt["h1"].find("H1-BOB") is not None


def test_a_change_is_published_at_once_and_only_once() -> None:
    one, other = Host("h1"), Host("h2")
    true = exchange(one, other, start=10.0, seconds=6 * BEAT_SECONDS)
    assert [json.loads(said)["kind"] for said in one.says(true + 0.1)] in ([], ["beat"])
    one.presence.roster = roster("h1-bob", "carol")
    assert one.presence.due_seconds(one.clock(true)) == 0.0
    assert "roster" in [json.loads(said)["kind"] for said in one.says(true + 0.2)]
    assert "roster" not in [json.loads(said)["kind"] for said in one.says(true + 0.3)]


def test_six_silent_seconds_make_a_host_unreachable_and_a_beat_makes_it_reachable() -> None:
    one, other = Host("h1"), Host("h2", ahead=-5.0)
    true = exchange(one, other, start=10.0, seconds=10.0)
    assert one.presence.reachable("h2", one.clock(true))
    last = one.presence.peers["h2"].moment
    true = exchange(one, other, start=true, seconds=SILENT_SECONDS + 1.0, there=False)
    assert not one.presence.reachable("h2", one.clock(true))
    assert one.presence.peers["h2"].moment == last, "since when it is silent"
    exchange(one, other, start=true, seconds=BEAT_SECONDS + 0.5)
    assert one.presence.reachable("h2", one.clock(true + BEAT_SECONDS))


def test_a_lost_roster_is_sent_again_after_a_later_beat() -> None:
    """The broker stores nothing, so a host that was offline missed the publication."""
    one, other = Host("h1"), Host("h2")
    true = exchange(one, other, start=10.0, seconds=10.0)
    other.presence.roster = roster("dora")
    true = exchange(one, other, start=true, seconds=1.0, there=False)
    exchange(one, other, start=true, seconds=3 * BEAT_SECONDS)
    assert one.learnt["h2"] == other.presence.roster


def test_idle_time_is_sent_as_an_age_and_independent_of_the_other_clock() -> None:
    told = roster("bob").encode(MOMENT + 60.0)
    found = FarRoster.decode(told, 5_000.0)
    assert found.members[0].since == 5_000.0 - 60.0


def test_the_round_trip_excludes_the_time_before_the_answer() -> None:
    one, other = Host("h1"), Host("h2", ahead=777.0)
    (beat, *_) = one.says(10.0)
    other.hears(one, beat, 10.1)
    other.presence._next_beat = other.clock(11.5)
    (answer, *_) = other.says(11.5)
    one.hears(other, answer, 11.7)
    found = one.presence.peers["h2"].round_trip
    assert found == pytest.approx(0.3)


MOMENTS = st.floats(min_value=0.0, max_value=600.0)


@settings(max_examples=25, deadline=None)
@example(ahead=0.0, rate=1.00013, delays=[1.0, None, 0.0], asked=[23.0])
@given(
    ahead=st.floats(min_value=-1e5, max_value=1e5),
    rate=st.floats(min_value=0.9996, max_value=1.0004),
    delays=st.lists(st.one_of(st.none(), MOMENTS), min_size=1, max_size=20),
    asked=st.lists(MOMENTS, min_size=1, max_size=10),
)
def test_a_late_request_is_never_taken_for_a_timely_one(
    ahead: float, rate: float, delays: list[float | None], asked: list[float]
) -> None:
    """Whatever is lost or delayed, for however long, and however wrong the clocks are."""
    one, other = Host("h1", ahead=2e5), Host("h2", ahead=2e5 + ahead, rate=rate)
    wire: list[tuple[float, Host, Host, bytes]] = []
    true, sent = 0.0, 0
    while true < 60.0 or wire:
        for sender, receiver in ((one, other), (other, one)) if true < 60.0 else ():
            for payload in sender.says(true):
                delay = delays[sent % len(delays)]
                sent += 1
                if delay is not None:
                    wire.append((true + delay, sender, receiver, payload))
        arrived = sorted((frame for frame in wire if frame[0] <= true), key=lambda one: one[0])
        wire = [frame for frame in wire if frame[0] > true]
        for _, sender, receiver, payload in arrived:
            receiver.hears(sender, payload, true)
        peer = one.presence.peers.get("h2")
        for deadline in asked:
            left = one.presence.left("h2", "boot of h2", other.clock(deadline), one.clock(true))
            assert (left or 0.0) <= max(0.0, deadline - true) + 1e-6, (
                "it would be carried out too late"
            )
        if peer is not None and (latest := peer.clock.latest(one.clock(true))) is not None:
            assert latest >= other.clock(true) - 1e-6
        true += 1.0 if true < 60.0 else 50.0


def test_a_timely_request_is_accepted_even_if_the_clocks_differ_by_hours() -> None:
    one, other = Host("h1"), Host("h2", ahead=7200.0)
    true = exchange(one, other, start=10.0, seconds=10.0)
    now = one.clock(true)
    left = one.presence.left("h2", "boot of h2", other.clock(true + 5.0), now)
    assert left == pytest.approx(5.0, abs=0.01)
    assert one.presence.left("h2", "boot of h2", other.clock(true - 1.0), now) == 0.0
    assert one.presence.left("h2", "another boot", other.clock(true + 5.0), now) == 0.0
    assert one.presence.left("h9", "boot of h9", 1e9, now) is None, "its clock is not known"


SAID = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(["beat", "roster", "x"]),
    facts=st.dictionaries(
        st.sampled_from(
            ["session", "boot", "clock", "heard", "version", "team", "members", "left_out"]
        ),
        SAID,
    ),
    echo=SAID,
)
def test_no_frame_from_a_host_does_harm(kind: str, facts: dict[str, Any], echo: Any) -> None:
    one, other = Host("h1"), Host("h2")
    exchange(one, other, start=10.0, seconds=5.0)
    if isinstance(facts.get("heard"), dict):
        facts["heard"]["h1"] = echo
    with suppress(NotAMessage):
        one.hears(other, json.dumps({"kind": kind, **facts}).encode(), 15.0)
    assert list(one.presence.due(one.clock(30.0), MOMENT))


@pytest.mark.parametrize("value", ["s" * 900_000, "\x1b[31m", ""])
@pytest.mark.parametrize("key", ["session", "boot"])
def test_a_beat_whose_names_cannot_be_encoded_is_ignored(key: str, value: str) -> None:
    """Each beat of this host repeats the names; beyond 1 MiB the broker would drop it."""
    one, other = Host("h1"), Host("h2")
    exchange(one, other, start=10.0, seconds=1.0)
    beat = {"kind": "beat", "session": "s", "boot": "b", "clock": 1.0, "heard": {}, key: value}
    with pytest.raises(NotAMessage):
        one.presence.heard("h2", json.dumps(beat).encode(), 12.0, MOMENT)
    told = {"kind": "roster", "version": value * 2, "team": "project", "members": []}
    assert one.presence.heard("h2", json.dumps(told).encode(), 12.0, MOMENT) is None
    assert max(map(len, one.says(20.0))) < 1000


def test_two_machines_with_one_name_are_detected_and_a_restart_is_not_reported() -> None:
    """Sessions of two machines alternate; the session of a stopped postman does not return."""
    one, other, copy = Host("h1"), Host("h2"), Host("h2")
    true = exchange(one, other, start=10.0, seconds=10.0)
    for _ in range(5):
        other = Host("h2")
        true = exchange(one, other, start=true, seconds=2 * BEAT_SECONDS)
    assert one.presence.doubles() == set()
    for _ in range(4):
        true = exchange(one, other, start=true, seconds=BEAT_SECONDS)
        true = exchange(one, copy, start=true, seconds=BEAT_SECONDS)
    assert one.presence.doubles() == {"h2"}


def test_another_machine_with_this_hosts_name_is_detected() -> None:
    one, copy = Host("h1"), Host("h1")
    exchange(one, copy, start=10.0, seconds=5 * BEAT_SECONDS)
    assert (one.presence.doubles(), one.presence.peers) == ({"h1"}, {})
    single = Host("h1")
    for _ in range(9):
        single.presence.heard("h1", json.dumps({"kind": "roster"}).encode(), 10.0, MOMENT)
    assert single.presence.doubles() == set()


def test_its_own_beats_and_invalid_host_names_are_ignored() -> None:
    one, other = Host("h1"), Host("h2")
    (beat, *_) = other.says(10.0)
    for name in ("H1", "../x", "h2.evil"):
        one.presence.heard(name, beat, 10.0, MOMENT)
    assert one.presence.peers == {}


def test_a_published_roster_has_only_names_roles_and_states() -> None:
    """Models, paths, reasons and pids are not published."""
    member = Member(
        name="bob", agent_id="bob@project", role="r" * 500, status=Status.PAUSED, pid=7,
        reason="/home/me/secret", model="m", status_since=MOMENT,
    )  # fmt: skip
    team = Team(members=(member,) * (MOST + 2))
    told = FarRoster.of(team)
    (first, *rest) = told.encode(MOMENT + 3.0)["members"]
    assert first == {"name": "bob", "role": "r" * 200, "status": "paused", "age": 3.0}
    assert (len(rest) + 1, told.left_out) == (MOST, 2)
    assert len(json.dumps(told.encode(MOMENT))) < 512 * 1024
    assert FarRoster.of(team).version == told.version


def test_a_host_that_receives_nothing_soon_counts_as_not_answering() -> None:
    """The broker may pass only one direction; mail then moves in neither."""
    one, other = Host("h1"), Host("h2")
    true = exchange(one, other, start=10.0, seconds=10.0)
    end = true + SILENT_SECONDS + 3 * BEAT_SECONDS
    while true < end:
        one.says(true)  # and the other host does not receive it
        for payload in other.says(true):
            one.hears(other, payload, true)
        true += 0.25
    peer = one.presence.peers["h2"]
    assert peer.reachable(one.clock(true))
    assert not peer.answers(one.clock(true))
    true = exchange(one, other, start=true, seconds=3 * BEAT_SECONDS)
    assert peer.answers(one.clock(true))


def test_silence_without_a_connection_is_not_counted_against_a_host() -> None:
    one, other = Host("h1"), Host("h2")
    true = exchange(one, other, start=10.0, seconds=10.0)
    peer = one.presence.peers["h2"]
    for connected in (True, False):
        end = true + SILENT_SECONDS - 0.5
        while true < end:
            assert peer.answers(one.clock(true))
            for payload in other.says(true):
                one.hears(other, payload, true)
            true += 0.25
        if connected:
            one.presence.connected(one.clock(true))


def test_a_host_answers_again_at_its_first_beat_after_a_long_silence() -> None:
    one, other = Host("h1"), Host("h2")
    true = exchange(one, other, start=10.0, seconds=10.0)
    true = exchange(one, other, start=true, seconds=4 * SILENT_SECONDS, there=False)
    peer = one.presence.peers["h2"]
    assert not peer.answers(one.clock(true))
    other.presence.connected(other.clock(true))
    one.hears(other, other.says(true)[0], true)
    assert peer.answers(one.clock(true))


def test_a_roster_that_could_not_be_stored_is_sent_again() -> None:
    """The disk was full when it arrived; otherwise the members of that host would stay unknown."""
    one, other = Host("h1"), Host("h2")
    true = exchange(one, other, start=10.0, seconds=10.0)
    del one.learnt["h2"]
    one.presence.forget_roster("h2")
    exchange(one, other, start=true, seconds=3 * BEAT_SECONDS)
    assert one.learnt["h2"] == other.presence.roster
