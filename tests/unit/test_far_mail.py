"""Mail to and from other hosts: addresses, the outbox, and the notices to senders."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd.clocks import time_of_day
from teamd.errors import BadName, NotAMessage, TeamError, UnknownHost, UnknownTeam
from teamd.files import files, locks
from teamd.files.paths import TeamPaths
from teamd.hosts import rosters
from teamd.hosts.far import FarHosts, describe_absence
from teamd.hosts.outbox import ConfirmedPosition, Outbox, OutboxFull
from teamd.hosts.places import HostAddress, HostPlaces, parse_address
from teamd.hosts.rosters import FarMember, FarRoster
from teamd.hosts.view import HostState, HostView, Views, read_views
from teamd.journal import Journal
from teamd.mail.routing import MailRouter, Sent, broadcast_far
from teamd.mail.trace import DeliveryStage, trace
from teamd.messages import INTERRUPT_TYPE, Message
from teamd.postman.delivery import FarDelivery
from teamd.team.states import Status
from tests.unit.life import enrol


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / "project" / ".team")
    enrol(made, alice=Status.WORKING, bob=Status.IDLE, gone=Status.SHUTDOWN)
    HostPlaces(made).create()
    return made


@pytest.fixture
def post(paths: TeamPaths) -> MailRouter:
    hosts = FarHosts(paths, "h1", durable=False, named=frozenset({"h3"}))
    return MailRouter(paths, durable=False, max_bytes=1000, hosts=hosts)


@pytest.fixture
def postman(paths: TeamPaths) -> Iterator[None]:
    """Hold the lock of a running postman."""
    lock = HostPlaces(paths).postman
    files.append(lock, b"", durable=False)
    with locks.locked(lock):
        yield


def see(paths: TeamPaths, host: str, state: HostState = HostState.REACHABLE, **facts: Any) -> None:
    views = Views(paths)
    views.change(host, state=state, since=time.time(), **facts)
    views.write()


def told(paths: TeamPaths, host: str, **members: Status) -> None:
    listed = [FarMember(name=name, role="coder", status=how) for name, how in members.items()]
    roster = FarRoster(team="project", members=tuple(listed))
    rosters.keep(HostPlaces(paths).roster(host), roster)


def queued(paths: TeamPaths, host: str) -> list[dict[str, Any]]:
    return [line.fields or {} for line in Outbox(paths, host).read()]


def to(address: str, **facts: Any) -> Message:
    return Message(**{"sender": "alice", "to": address, "content": "x", **facts})


def test_mail_to_another_machine_is_a_line_in_its_outbox(
    post: MailRouter, paths: TeamPaths, postman: None
) -> None:
    see(paths, "h2")
    told(paths, "h2", Bob=Status.IDLE)
    message = to("bob@PROJECT@H2", extra={"summary": "s", "request_id": "7", "approve": True})
    assert post.send(message) == Sent("Bob@project@h2")
    (line,) = queued(paths, "h2")
    assert (line["kind"], line["to"], line["team"]) == ("mail", "Bob", "project")
    assert line["message"].keys() == {"id", "type", "from", "content", "timestamp", "summary"}
    assert not post.inbox("bob").peek()


@pytest.mark.parametrize("address", ["bob@project@h1", "BOB@Project@H1"])
def test_an_address_with_this_hosts_name_is_local(
    post: MailRouter, paths: TeamPaths, address: str
) -> None:
    assert post.send(to(address)) == Sent("bob")
    assert post.address(address) == "bob"
    assert [mail.content for mail in post.inbox("bob").peek()] == ["x"]


@pytest.mark.parametrize(
    ("address", "error", "sentence"),
    [
        (
            "bob@project@h9",
            UnknownHost,
            "no host named 'h9'; the others are: h2, h3; `teamctl hosts`",
        ),
        ("bob@other@h2", BadName, "reaches only the team 'project': write bob@project@h2"),
        ("bob@h2", BadName, "h2 is a host, not a team; write bob@project@h2"),
        ("bob@H1", BadName, "H1 is a host, not a team; write bob@project@h1"),
        ("bob@nowhere", UnknownTeam, "no team named 'nowhere'"),
        ("bob@a@b@c", BadName, "an address on another host is NAME@TEAM@HOST"),
        ("@project@h2", BadName, "an address on another host is NAME@TEAM@HOST"),
        ("../x@project@h2", BadName, "an address on another host is NAME@TEAM@HOST"),
    ],
)
def test_an_invalid_address_is_answered_with_the_valid_ones(
    post: MailRouter, paths: TeamPaths, address: str, error: type[TeamError], sentence: str
) -> None:
    see(paths, "h2")
    with pytest.raises(error, match=sentence.replace("(", r"\(")):
        post.send(to(address))
    assert queued(paths, "h2") == []


def test_without_hosts_no_host_files_are_created(tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / "project" / ".team")
    enrol(paths, bob=Status.IDLE)
    plain = MailRouter(paths, durable=False, max_bytes=1000)
    with pytest.raises(BadName, match=r"this host has no name in \[hosts\]; `teamctl help hosts`"):
        plain.send(to("bob@project@h2"))
    with pytest.raises(UnknownTeam):
        plain.send(to("bob@h2"))
    assert not paths.hosts.exists()


def test_a_sender_is_told_that_its_mail_waits_and_since_when(
    post: MailRouter, paths: TeamPaths, postman: None
) -> None:
    see(paths, "h2", HostState.UNREACHABLE, why="no sign of life")
    at = time_of_day(read_views(paths)[0].since or 0)
    warning = post.send(to("bob@project@h2")).warning
    assert warning == f"queued for h2: unreachable since {at} (no sign of life)"
    assert post.send(to("bob@project@h3")).warning == "queued for h3: it was never heard of yet"
    assert len(queued(paths, "h2")) == 1


def test_a_sender_is_told_that_no_postman_runs(post: MailRouter, paths: TeamPaths) -> None:
    see(paths, "h2")
    assert "queued for h2: no postman runs here" in str(post.send(to("bob@project@h2")).warning)


def test_a_shut_down_receiver_is_recognized_by_the_roster_of_its_host(
    post: MailRouter, paths: TeamPaths, postman: None
) -> None:
    see(paths, "h2")
    told(paths, "h2", dora=Status.SHUTDOWN)
    assert "dora@project@h2 is shut down; the message waits there" in str(
        post.send(to("dora@project@h2")).warning
    )


def test_a_full_outbox_is_an_error_and_does_not_block(post: MailRouter, paths: TeamPaths) -> None:
    assert post.hosts is not None
    full = replace(post, hosts=replace(post.hosts, max_bytes=300))
    full.send(to("bob@project@h3"))
    with pytest.raises(
        OutboxFull, match=r"too much mail waits for h3: \[hosts\] outbox_bytes, 300"
    ):
        full.send(to("bob@project@h3"))
    with pytest.raises(NotAMessage, match="over the limit of 1000"):
        post.send(to("bob@project@h3", content="x" * 1000))


def test_a_different_text_with_a_queued_id_is_refused(post: MailRouter) -> None:
    first = to("bob@project@h3", id="order-66")
    post.check_id(first)
    post.send(first)
    post.check_id(first)
    with pytest.raises(TeamError, match="was sent another text with the id 'order-66'"):
        post.check_id(replace(first, content="y"))


def test_a_broadcast_names_the_teammates_that_it_missed(
    post: MailRouter, paths: TeamPaths, postman: None
) -> None:
    see(paths, "h2")
    told(paths, "h2", bob=Status.IDLE, dora=Status.SHUTDOWN)
    found = broadcast_far(post, to("all", type="broadcast"))
    assert [one.to for one in found.sent] == ["bob@project@h2"]
    assert found.missed == {"h3": "it was never heard of yet"}
    assert [line["message"]["type"] for line in queued(paths, "h2")] == ["broadcast"]


def test_a_message_is_traced_to_the_other_machine(post: MailRouter, paths: TeamPaths) -> None:
    post.send(to("bob@project@h3", id="m-1"))
    (way,) = trace(paths, "m-1")
    assert (way.to, way.sender, way.stage) == ("bob@project@h3", "alice", DeliveryStage.CROSSING)
    assert way.file == str(HostPlaces(paths).outbox("h3"))
    ConfirmedPosition(1, "key", 1).write(HostPlaces(paths).confirmed("h3"), durable=False)
    (way,) = trace(paths, "m-1")
    assert way.stage is DeliveryStage.ARRIVED


def test_the_time_of_a_report_includes_the_day_unless_it_is_today() -> None:
    view = HostView(name="h2", state=HostState.UNREACHABLE, since=1000.0)
    day = time.strftime("%Y-%m-%d", time.localtime(view.since))
    assert str(describe_absence(view)).startswith(f"unreachable since {day} ")
    assert describe_absence(replace(view, state=HostState.REACHABLE)) is None


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True)


@given(NAMES, NAMES, NAMES)
def test_every_address_is_decoded_as_it_was_encoded(name: str, team: str, host: str) -> None:
    found = parse_address(f"{name}@{team}@{host}")
    assert found == HostAddress(name, team, host.lower())
    assert parse_address(str(found)) == found


@given(st.text(alphabet="aZ0_-@./ \n\0é", max_size=12))
def test_an_invalid_address_is_not_decoded(text: str) -> None:
    """Only names are valid, because they become parts of paths."""
    found = parse_address(text)
    if found is not None:
        assert text.count("@") == 2
        assert not set("./ \n\0é") & set(text)


# Mail from other hosts.


@pytest.fixture
def delivery(post: MailRouter, tmp_path: Path) -> Iterator[FarDelivery]:
    with closing(Journal(tmp_path / "log", "postman")) as journal:
        yield FarDelivery(post, "project", journal)


def line(*, to: str = "bob", team: str = "project", **message: Any) -> bytes:
    facts = {"id": "m-1", "type": "message", "from": "carol", "content": "hello", "timestamp": 1.5}
    return wired({"to": to, "team": team, "message": {**facts, **message}})


def wired(found: dict[str, Any]) -> bytes:
    """Return a mail line as it arrives over the wire."""
    text = json.dumps({"kind": "mail", **found}, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def test_mail_from_another_host_names_it_in_the_sender(
    delivery: FarDelivery, post: MailRouter
) -> None:
    delivery.deliver("h2", [line(to="BOB", summary="s")])
    (mail,) = post.inbox("bob").peek()
    assert (mail.sender, mail.to, mail.content) == ("carol@project@h2", "bob", "hello")
    assert (mail.timestamp, mail.summary, mail.id) == (1.5, "s", "m-1")


@pytest.mark.parametrize("claimed", ["lead@project@h3", "lead@project", "@", "", None, 7])
def test_a_sender_that_claims_another_host_is_refused(
    delivery: FarDelivery, post: MailRouter, claimed: Any
) -> None:
    delivery.deliver("h2", [line(**{"from": claimed}), line(id="m-2")])
    assert [mail.id for mail in post.inbox("bob").peek()] == ["m-2"]


def test_only_plain_messages_cross_hosts(delivery: FarDelivery, post: MailRouter) -> None:
    """An interrupt would end a turn, a prompt begin a task and an approval answer a request."""
    power: dict[str, Any] = {
        "prompt": True,
        "fresh": True,
        "request_id": "1",
        "approve": True,
        "task_id": "1",
    }
    delivery.deliver("h2", [line(type=INTERRUPT_TYPE, **power), line(id="m-2", type="broadcast")])
    first, second = post.inbox("bob").peek()
    assert (first.type, dict(first.extra)) == ("message", {})
    assert second.type == "broadcast"


def test_messages_to_one_receiver_keep_their_order(delivery: FarDelivery, post: MailRouter) -> None:
    names = ["bob", "alice"] * 20
    delivery.deliver("h2", [line(to=name, id=f"m-{n}") for n, name in enumerate(names)])
    for box, first in (("bob", 0), ("alice", 1)):
        ids = [mail.id for mail in post.inbox(box).peek()]
        assert ids == [f"m-{n}" for n in range(first, 40, 2)]


@pytest.mark.parametrize(
    ("to", "team", "sentence"),
    [
        ("bbo", "project", "no teammate named 'bbo'; the team is: alice, bob, gone"),
        ("teamd", "project", "it cannot receive mail"),
        ("bob", "other", "the team there is 'project'; give both hosts the same [team] name"),
        ("gone", "project", "gone is shut down; the message waits"),
    ],
)
def test_a_sender_is_told_by_mail_why_its_message_was_not_read(
    delivery: FarDelivery, paths: TeamPaths, to: str, team: str, sentence: str
) -> None:
    see(paths, "h2")
    delivery.deliver("h2", [line(to=to, team=team), line(id="m-2")])
    (answer,) = queued(paths, "h2")
    assert (answer["to"], answer["team"]) == ("carol", "project")
    assert sentence in answer["message"]["content"]
    assert answer["message"]["from"] == "teamd"
    box = delivery.post.inbox
    assert [mail.id for mail in box("bob").peek()] == ["m-2"], "the others get theirs"
    assert len(box("gone").peek()) == (1 if to == "gone" else 0)


def test_the_answers_to_a_batch_are_synced_once(
    delivery: FarDelivery, post: MailRouter, paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mail of all hosts waits during a sync."""
    see(paths, "h2")
    post = replace(post, hosts=FarHosts(paths, "h1"))
    path, real, sizes = HostPlaces(paths).outbox("h2"), os.fdatasync, []

    def sync(fd: int) -> None:
        if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
            sizes.append(os.fstat(fd).st_size)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    lines = [line(to="nobody", id=f"m-{number}") for number in range(20)]
    replace(delivery, post=post).deliver("h2", lines)
    assert len(queued(paths, "h2")) == len(lines)
    assert sizes == [path.stat().st_size], "once, behind all of them"


def test_mail_from_teamd_is_never_answered(
    delivery: FarDelivery, post: MailRouter, paths: TeamPaths
) -> None:
    """Otherwise two hosts would answer each other endlessly."""
    see(paths, "h2")
    delivery.deliver("h2", [line(to="nobody", **{"from": "teamd"})])
    assert queued(paths, "h2") == []


def test_mail_to_a_full_inbox_is_answered_and_does_not_block_others(
    delivery: FarDelivery, post: MailRouter, paths: TeamPaths
) -> None:
    see(paths, "h2")
    tight = replace(delivery, post=replace(post, max_inbox_bytes=400))
    post.send(to("bob"))
    sent = [line(id=f"m-{n}", content="x" * 90) for n in range(5)]
    tight.deliver("h2", [*sent, line(to="alice", id="m-9")])
    assert [mail.id for mail in post.inbox("bob").peek()][1:] == ["m-0"]
    assert [mail.id for mail in post.inbox("alice").peek()] == ["m-9"]
    answers = queued(paths, "h2")
    assert [one["message"]["id"] for one in answers] == [f"m-{n}-told" for n in range(1, 5)]
    assert "the inbox of bob is full" in answers[0]["message"]["content"]


def test_a_message_too_long_for_this_machine_is_answered(
    delivery: FarDelivery, post: MailRouter, paths: TeamPaths
) -> None:
    see(paths, "h2")
    delivery.deliver("h2", [line(content="x" * 2000), line(id="m-2")])
    assert [mail.id for mail in post.inbox("bob").peek()] == ["m-2"]
    assert "over the limit of 1000" in queued(paths, "h2")[0]["message"]["content"]


def test_a_message_that_no_inbox_can_hold_is_answered(
    delivery: FarDelivery, post: MailRouter, paths: TeamPaths
) -> None:
    see(paths, "h2")
    delivery.deliver("h2", [line(content="a\0b"), line(id="m-2")])
    assert [mail.id for mail in post.inbox("bob").peek()] == ["m-2"]
    assert "a message cannot hold a NUL character" in queued(paths, "h2")[0]["message"]["content"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["to", "team", "message"]), ANYTHING), st.data())
def test_no_line_from_another_host_does_harm(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, Any], data: st.DataObject
) -> None:
    paths = TeamPaths(tmp_path_factory.mktemp("team") / ".team")
    enrol(paths, bob=Status.IDLE)
    hosts = FarHosts(paths, "h1", durable=False, named=frozenset({"h2"}))
    post = MailRouter(paths, durable=False, max_bytes=1000, hosts=hosts)
    keys = st.sampled_from(["id", "type", "from", "content", "timestamp", "summary"])
    odd: dict[str, Any] = data.draw(st.dictionaries(keys, ANYTHING))
    with closing(Journal(paths.log("postman"), "postman")) as journal:
        FarDelivery(post, "project", journal).deliver(
            "h2", [wired(found), line(**odd), line(id="last")]
        )
    mail = post.inbox("bob").peek()
    assert mail[-1].id == "last"
    assert all(one.sender.endswith("@project@h2") for one in mail)
    assert json.dumps([one.to_json() for one in mail])


def test_a_sender_gets_one_notice_if_a_shut_down_receiver_has_a_full_inbox(
    delivery: FarDelivery, post: MailRouter, paths: TeamPaths
) -> None:
    see(paths, "h2")
    tight = replace(delivery, post=replace(post, max_inbox_bytes=300))
    lines = [line(to="gone", id=f"m-{number}", content="x" * 150) for number in range(3)]
    tight.deliver("h2", lines[:1])
    tight.deliver("h2", lines[1:])
    said = [one["message"]["content"].splitlines()[0] for one in queued(paths, "h2")]
    assert [("is there" in one, "was not delivered" in one) for one in said] == [
        (True, False), (False, True), (False, True),
    ]  # fmt: skip
    assert len(post.inbox("gone").peek()) == 1


def test_an_answer_can_be_sent_for_any_receiver_name(
    delivery: FarDelivery, paths: TeamPaths
) -> None:
    see(paths, "h2")
    delivery.deliver("h2", [line(to="bob\0")])
    (answer,) = queued(paths, "h2")
    assert "was not delivered" in answer["message"]["content"]
