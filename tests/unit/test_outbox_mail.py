"""Mail on its way to other hosts, found in the outboxes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from teamd.errors import BadName, NotAMessage
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.hosts.places import HostPlaces
from teamd.mail.outbox_mail import crossing
from teamd.mail.routing import MailRouter
from teamd.mail.trace import DeliveryStage, trace
from teamd.messages import Message, parse_object
from teamd.team.states import Status
from tests.shells import opened
from tests.unit.life import enrol


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / "project" / ".team")
    enrol(made, alice=Status.WORKING, bob=Status.IDLE)
    HostPlaces(made).create()
    return made


@pytest.fixture
def post(paths: TeamPaths) -> MailRouter:
    hosts = FarHosts(paths, "h1", durable=False, named=frozenset({"h3"}))
    return MailRouter(paths, durable=False, max_bytes=1000, hosts=hosts)


def send(post: MailRouter, **facts: Any) -> Message:
    message = Message(**{"sender": "alice", "to": "bob@project@h3", "content": "x", **facts})
    post.send(message)
    return message


def ids(paths: TeamPaths, begun: str) -> list[str]:
    return [message.id for _, message, _, _ in crossing(paths, begun)]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("request", {"to": "bob", "team": "project", "message": {"id": "m-1", "content": "x"}}),
        ("mailing", {"to": "bob", "team": "project", "message": {"id": "m-1", "content": "x"}}),
        ("mail", {"to": "bob", "team": "project", "message": {"id": "m-1"}}),
        ("mail", {"to": "bob", "team": "project", "message": "m-1"}),
        ("mail", {"to": 5, "team": "project", "message": {"id": "m-1", "content": "x"}}),
        ("mail", {"to": "bob", "message": {"id": "m-1", "content": "x"}}),
    ],
)
def test_invalid_mail_is_skipped_and_does_not_hide_other_messages(
    post: MailRouter, paths: TeamPaths, kind: str, fields: dict[str, Any]
) -> None:
    """A later version may send fields that this one does not know."""
    HostPlaces(paths).outbox("h3").write_text(json.dumps({"kind": kind, **fields}) + "\n")
    assert ids(paths, "m-1") == []
    send(post, id="m-1")
    assert ids(paths, "m-1") == ["m-1"]


def test_a_line_that_is_not_json_is_skipped(post: MailRouter, paths: TeamPaths) -> None:
    send(post, id="m-1")
    outbox = HostPlaces(paths).outbox("h3")
    with outbox.open("ab") as file:
        file.write(b'{"kind": "mail", m-1}\n')
    send(post, id="m-12")
    assert ids(paths, "m-1") == ["m-1", "m-12"]


def test_an_id_inside_a_text_is_not_the_id_of_the_message(
    post: MailRouter, paths: TeamPaths
) -> None:
    send(post, id="m-2", content="I got your m-1.")
    assert (ids(paths, "m-1"), ids(paths, "m-2")) == ([], ["m-2"])


def test_an_id_with_json_escapes_is_found(post: MailRouter, paths: TeamPaths) -> None:
    send(post, id='a"b')
    assert ids(paths, 'a"') == ['a"b']


@pytest.mark.parametrize("content", [b"", b'{"epoch": "torn', b"no header\n", b"\0" * 300 + b"\n"])
def test_an_empty_or_damaged_outbox_does_not_hide_the_others(
    post: MailRouter, paths: TeamPaths, content: bytes
) -> None:
    """`doctor` reports the damage; a search for a message reads the other outboxes."""
    HostPlaces(paths).outbox("h2").write_bytes(content)
    send(post, id="m-1")
    assert ids(paths, "m-1") == ["m-1"]
    assert [way.to for way in trace(paths, "m-1")] == ["bob@project@h3"]


def test_a_message_sent_twice_is_listed_once(post: MailRouter, paths: TeamPaths) -> None:
    for _ in range(2):
        send(post, id="m-1")
    (way,) = trace(paths, "m-1")
    assert (way.to, way.stage) == ("bob@project@h3", DeliveryStage.CROSSING)
    send(post, id="m-1", to="alice@project@h3")
    assert len(trace(paths, "m-1")) == 2


def test_a_receiver_on_another_host_has_no_inbox_here(post: MailRouter) -> None:
    with pytest.raises(BadName, match="it is on another host; only mail and commands go there"):
        post.inbox("bob@project@h3")


def test_more_inboxes_can_be_written_than_are_kept_open(paths: TeamPaths) -> None:
    """The file that was opened first is closed, and opened again when needed."""
    names = [f"m{number}" for number in range(130)]
    post = MailRouter(paths, durable=False, max_bytes=1000)
    before = opened()
    for name in (*names, names[0]):
        post.mailbox(name).put(Message(sender="eve", to=name, content=name))
    assert len(opened() - before) <= 128
    found = [[mail.content for mail in post.mailbox(name).peek()] for name in names]
    assert found == [["m0", "m0"], *([name] for name in names[1:])]


def nested(levels: int) -> bytes:
    return b'{"content": "x", "extra": ' + b'{"a": ' * levels + b"1" + b"}" * levels + b"}"


def test_too_deeply_nested_objects_are_not_a_message() -> None:
    with pytest.raises(NotAMessage, match="it is nested deeper than "):
        parse_object(nested(101))
    assert parse_object(nested(99))["content"] == "x"
    wide = b'{"content": "x", "extra": [' + b",".join([b"{}"] * 300) + b"]}"
    assert len(parse_object(wide)["extra"]) == 300
