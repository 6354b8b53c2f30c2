"""Presence of hosts: beats, problems of their folders, and the state in which a host is shown."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import MOST, FarRoster
from teamd.hosts.view import HostState, Views
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.postman.connection import LostConnection
from teamd.postman.presence import DOUBLE, SILENT_SECONDS, Beat, Peer, explain_folder, new_tag
from teamd.postman.process import ConnectionTasks, Postman
from teamd.settings.schema import HostSettings
from teamd.team.member import Member
from teamd.team.roster import Team
from teamd.team.states import Status
from tests.unit.life import enrol

MOMENT = 1_700_000_000.0
OFFLINE = "nothing listens at tls://h9:4222; does the broker run there?"


def beat(session: str = "s1", folder: str = "f1", former: str = "") -> Beat:
    return Beat(session=session, folder=folder, former=former, trip=0.001)


def test_a_beat_is_decoded_as_it_was_encoded() -> None:
    made = Beat(session=new_tag(), folder=new_tag(), former=new_tag(), trip=0.25)
    assert Beat.decode(made.encode()) == made


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["session", "folder", "former", "trip"]), VALUES))
def test_an_invalid_beat_is_ignored(facts: dict[str, Any]) -> None:
    found = Beat.decode(json.dumps(json.loads(beat().encode()) | facts).encode())
    if found is not None:
        assert Beat.decode(found.encode()) is not None
        assert all(isinstance(one, str) for one in (found.session, found.folder, found.former))
        assert 0 <= found.trip < float("inf")


@given(st.binary(max_size=30))
def test_random_bytes_are_not_a_beat(value: bytes) -> None:
    assert Beat.decode(value) is None


@pytest.mark.parametrize("value", ["s" * 900_000, "\x1b[31m", ""])
@pytest.mark.parametrize("key", ["session", "folder"])
def test_a_beat_whose_ids_are_not_ids_is_ignored(key: str, value: str) -> None:
    assert Beat.decode(json.dumps(json.loads(beat().encode()) | {key: value}).encode()) is None


def test_six_silent_seconds_make_a_host_unreachable_and_a_beat_makes_it_reachable() -> None:
    peer = Peer(beat(), 10.0)
    assert peer.is_reachable(10.0 + SILENT_SECONDS - 0.1)
    assert not peer.is_reachable(10.0 + SILENT_SECONDS)
    assert peer.hear(beat(), 20.0) is None
    assert peer.is_reachable(20.0)


def test_two_machines_with_one_name_are_reported_once_and_restarts_are_not() -> None:
    """Sessions of two machines alternate; the session of a stopped postman does not return."""
    restarted = Peer(beat("s0"), 0.0)
    assert [restarted.hear(beat(f"s{n}"), float(n)) for n in range(1, 30)] == [None] * 29
    twin = Peer(beat("s0"), 0.0)
    told = [twin.hear(beat(f"s{n % 2}"), float(n)) for n in range(1, 30)]
    assert [one for one in told if one] == [DOUBLE]
    assert twin.hear(beat("s9"), 30.0) is None


def test_two_machines_with_one_name_do_not_report_each_others_folders_all_the_time() -> None:
    """Otherwise the reports of both machines would push the useful one out."""
    twin = Peer(beat("s0", "f0"), 0.0)
    told = [twin.hear(beat(f"s{n % 2}", f"f{n % 2}"), float(n)) for n in range(1, 30)]
    first, second = (one for one in told if one)
    assert first.startswith("it has lost its folder")
    assert second == DOUBLE


@pytest.mark.parametrize(
    ("known", "found", "told"),
    [
        ("", beat(), None),
        ("f1", beat(), None),
        ("f1", beat(folder="f2", former="f1"), "it came back with an old copy of its folder"),
        ("f1", beat(folder="f2"), "it has lost its folder"),
        ("f1", beat(folder="f2", former="f0"), "it has lost its folder"),
    ],
)
def test_another_folder_of_a_host_is_explained(known: str, found: Beat, told: str | None) -> None:
    said = explain_folder(known, found)
    assert said is None if told is None else (said or "").startswith(told)
    assert Peer(beat(folder=known), 0.0).hear(found, 1.0) == said


def test_a_published_roster_has_only_names_roles_and_states() -> None:
    """Models, paths, reasons and pids are not published."""
    member = Member(
        name="bob", agent_id="bob@project", role="r" * 500, status=Status.PAUSED, pid=7,
        reason="/home/me/secret", model="m", status_since=MOMENT,
    )  # fmt: skip
    told = FarRoster.of(Team(members=(member,) * (MOST + 2)))
    (first, *rest) = told.encode(MOMENT + 3.0)["members"]
    assert first == {"name": "bob", "role": "r" * 200, "status": "paused", "age": 3.0}
    assert (len(rest) + 1, told.left_out) == (MOST, 2)
    assert len(json.dumps(told.encode(MOMENT))) < 512 * 1024


def test_idle_time_is_sent_as_an_age_and_independent_of_the_other_clock() -> None:
    member = Member(name="bob", agent_id="b@p", role="r", status=Status.IDLE, status_since=MOMENT)
    told = FarRoster.of(Team(members=(member,))).encode(MOMENT + 60.0)
    assert FarRoster.decode(told, 5_000.0).members[0].since == 5_000.0 - 60.0


@pytest.fixture
def postman(tmp_path: Path) -> Iterator[Postman]:
    """The postman of h1, without a connection."""
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths, bob=Status.IDLE)
    HostPlaces(paths).create()
    hosts = FarHosts(paths, "h1", durable=False)
    post = MailRouter(paths, durable=False, max_bytes=9999, hosts=hosts)
    with closing(Journal(tmp_path / "log", "postman")) as journal:
        made = Postman(
            paths, HostSettings(name="h1"), post, "project", journal,
            durable=False, check=lambda: None, views=Views(paths),
        )  # fmt: skip
        made._folder = {"folder": "f9", "former": ""}
        yield made


def seen(postman: Postman, host: str = "h2") -> tuple[HostState, str]:
    view = postman.views.get(host)
    return view.state, view.why


def fall_silent(postman: Postman, host: str = "h2") -> None:
    postman._peers[host].heard -= 60.0


def test_a_heard_host_is_reachable_with_a_round_trip(postman: Postman) -> None:
    postman._trip = 0.002
    postman._hear("h2", beat())
    assert seen(postman) == (HostState.REACHABLE, "")
    view = postman.views.get("h2")
    assert (view.round_trip_ms, view.folder) == (3.0, "f1")
    postman._trip = 0.0021
    postman._show("h2", "")
    assert postman.views.get("h2").round_trip_ms == 3.0, "a small change is not displayed"


def test_a_host_is_unreachable_since_its_last_beat_and_the_reason_follows_the_broker(
    postman: Postman,
) -> None:
    """The broker may fail after the host did: the reason is current, the time is not."""
    postman._hear("h2", beat())
    fall_silent(postman)
    postman._show("h2", "")
    assert seen(postman) == (HostState.UNREACHABLE, "it is silent")
    since = postman.views.get("h2").since
    assert since is not None
    assert since <= time.time() - 59.0
    for why, shown in ((OFFLINE, OFFLINE), ("", "it is silent")):
        postman._show("h2", why)
        assert seen(postman) == (HostState.UNREACHABLE, shown)
        assert postman.views.get("h2").since == since
    assert postman.views.get("h2").round_trip_ms is None


def test_without_a_connection_no_host_is_reachable(postman: Postman) -> None:
    postman._hear("h2", beat())
    postman._show_all(OFFLINE)
    assert seen(postman) == (HostState.UNREACHABLE, OFFLINE)


def test_a_host_last_seen_by_an_earlier_postman_is_unreachable_from_now_on(
    postman: Postman,
) -> None:
    begun = time.time()
    postman.views.change("h2", state=HostState.REACHABLE, since=MOMENT, round_trip_ms=3.0)
    postman._show("h2", "")
    assert seen(postman) == (HostState.UNREACHABLE, "it is silent")
    assert (postman.views.get("h2").since or 0.0) >= begun
    assert postman.views.get("h2").round_trip_ms is None


@pytest.mark.parametrize("why", ["", OFFLINE])
def test_a_host_that_was_never_heard_from_is_not_reported_as_gone(
    postman: Postman, why: str
) -> None:
    """The name in the settings may never have existed, so silence proves nothing."""
    postman._show("h2", why)
    assert seen(postman) == (HostState.NEVER, why)
    assert postman.views.get("h2").since is None


def test_another_folder_is_reported_also_after_a_restart_of_this_postman(postman: Postman) -> None:
    postman._hear("h2", beat())
    postman._peers.clear()
    postman._hear("h2", beat(folder="f2"))
    (report,) = postman.views.get("h2").reports
    assert report.text.startswith("it has lost its folder")
    postman._hear("h2", beat(folder="f2"))
    assert len(postman.views.get("h2").reports) == 1


def test_another_machine_with_this_hosts_name_is_reported(postman: Postman) -> None:
    own = beat(postman._session, "f9")
    for _ in range(9):
        postman._hear("h1", own)
    assert postman.views.get("h1").reports == ()
    for _ in range(9):
        postman._hear("h1", beat("s2", "f9"))
        postman._hear("h1", own)
    assert [one.text for one in postman.views.get("h1").reports] == [DOUBLE]
    assert postman.views.get("h1").state is HostState.NEVER, "this host is not another one"


def test_a_host_whose_files_are_gone_is_no_longer_shown(postman: Postman) -> None:
    """As after `teamctl hosts forget`; a host that is heard or has waiting mail stays."""
    for host in ("h2", "h3", "h4"):
        Outbox(postman.paths, host, durable=False).append(to="bob", team="p", message={"id": "1"})
        postman._show(host, "")
    postman._hear("h4", beat())
    for host in ("h2", "h4"):
        HostPlaces(postman.paths).outbox(host).unlink()
    postman._forget_hosts()
    assert sorted(postman.views.names()) == ["h3", "h4"]
    assert seen(postman, "h4") == (HostState.REACHABLE, "")


def test_a_failure_to_write_the_view_does_not_stop_the_postman(postman: Postman) -> None:
    state = HostPlaces(postman.paths).state
    state.mkdir()
    postman._hear("h2", beat())
    postman._show_all("")
    state.rmdir()
    postman._show_all("")
    assert "h2" in state.read_text()


def test_an_old_copy_of_this_folder_gets_another_id(postman: Postman) -> None:
    postman._note_old_copy("h2", 3)
    assert postman._folder["former"] == "f9"
    assert postman._folder["folder"] != "f9"


def test_a_task_that_loses_a_cancellation_still_ends_with_its_connection() -> None:
    """`asyncio.wait_for` does that in Python 3.11; a postman would wait for it forever."""
    cancelled = list[str]()

    async def deaf() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append("deaf")
                if len(cancelled) > 1:
                    raise

    async def lose() -> None:
        await asyncio.sleep(0)
        raise LostConnection("the broker is gone")

    async def serve() -> list[BaseException]:
        tasks = ConnectionTasks()
        tasks.start(deaf())
        tasks.start(lose())
        return await asyncio.wait_for(tasks.run(), 30)

    (error,) = asyncio.run(serve())
    assert str(error) == "the broker is gone"
    assert cancelled == ["deaf", "deaf"]


def test_tasks_that_are_started_later_end_with_the_connection_as_well() -> None:
    async def idle() -> None:
        await asyncio.sleep(3600)

    async def begin(tasks: ConnectionTasks) -> None:
        tasks.start(idle())
        raise StoreError("the disk is full")

    async def serve() -> list[BaseException]:
        tasks = ConnectionTasks()
        tasks.start(begin(tasks))
        errors = await asyncio.wait_for(tasks.run(), 30)
        assert len(asyncio.all_tasks()) == 1
        return errors

    (error,) = asyncio.run(serve())
    assert isinstance(error, StoreError)
