"""Mail that arrives through the broker: its order, gaps, repetitions and failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.hosts.outbox import read_counts
from teamd.hosts.places import HostPlaces
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.messages import Message
from teamd.postman.connection import BrokerConnection
from teamd.postman.delivery import FarDelivery
from teamd.postman.receiving import Received, Receiver
from teamd.postman.sending import AFTER, AGAIN, KEY
from teamd.team.states import Status
from tests.unit.life import enrol
from tests.unit.memory_broker import Delivered, MemoryBroker


@dataclass
class Host:
    """The receiving half of h1's postman, and its broker."""

    receiver: Receiver
    broker: MemoryBroker
    post: MailRouter
    reports: list[tuple[str, str]]

    @property
    def paths(self) -> TeamPaths:
        return self.post.paths

    def send(self, made: str, after: str = "", *, host: str = "h2", **facts: Any) -> Delivered:
        """Store a message of another host; its key is its id."""
        headers = {KEY: made, AFTER: after, **facts.pop("headers", {})}
        return self.broker.store(f"mail.h1.{host}", line(made, **facts), headers)

    def take(self, *messages: Delivered) -> None:
        """Receive these messages, or all that are not acknowledged."""
        found = [one.deliver() for one in messages] or self.broker.fetch_all()
        asyncio.run(self.receiver._take(found))

    def ids(self, name: str = "bob") -> list[str]:
        return [mail.id for mail in self.post.inbox(name).peek()]

    def counted(self, host: str = "h2") -> int:
        counts = read_counts(HostPlaces(self.paths).received(host))
        return int(counts["n"]) if counts else 0

    def confirmed(self, host: str = "h2") -> Received | None:
        return Received.decode(self.broker.values.get(("confirmed", f"{host}.h1"), b""))

    def restart(self, confirmed: Received | None, *, suspected: int) -> None:
        """Do the first steps of a new connection."""
        self.receiver._received, self.receiver._suspected = {}, suspected
        self.receiver._resume("h2", confirmed)


def line(made: str, *, to: str = "bob", sender: str = "dora", content: str = "x") -> bytes:
    message = {"id": made, "type": "message", "from": sender, "content": content, "timestamp": 1.5}
    return json.dumps({"kind": "mail", "to": to, "team": "project", "message": message}).encode()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    paths = TeamPaths(tmp_path / "project" / ".team")
    enrol(paths, bob=Status.IDLE, carol=Status.IDLE)
    HostPlaces(paths).create()
    hosts = FarHosts(paths, "h1", durable=False, named=frozenset({"h2", "h3"}))
    post = MailRouter(paths, durable=False, max_bytes=9999, hosts=hosts)
    broker, reports = MemoryBroker(), list[tuple[str, str]]()
    with closing(Journal(tmp_path / "log", "postman")) as journal:
        receiver = Receiver(
            "h1", cast("BrokerConnection", broker), FarDelivery(post, "project", journal),
            lambda *report: reports.append(report), journal, durable=False,
        )  # fmt: skip
        yield Host(receiver, broker, post, reports)


def test_mail_is_delivered_in_order_then_confirmed_and_acknowledged(host: Host) -> None:
    sent = [host.send("a"), host.send("b", "a"), host.send("c", "b", to="carol")]
    host.take()
    assert (host.ids(), host.ids("carol")) == (["a", "b"], ["c"])
    assert host.confirmed() == Received(3, "c", 3)
    assert host.counted() == 3
    assert all(one.is_gone for one in sent)


def test_mail_behind_a_gap_is_not_delivered_and_comes_again(host: Host) -> None:
    host.take(host.send("a"))
    late = [host.send("c", "b"), host.send("d", "c")]
    host.take(*late)
    assert host.ids() == ["a"]
    assert not any(one.is_gone for one in late)
    assert host.confirmed() == Received(1, "a", 1)
    for made, after in (("a", ""), ("b", "a"), ("c", "b"), ("d", "c")):  # the next run
        host.send(made, after, headers={AGAIN: "1"})
    host.take()
    assert host.ids() == ["a", "b", "c", "d"]
    host.take()
    assert all(one.is_gone for one in host.broker.stored)
    assert (host.counted(), host.confirmed()) == (4, Received(4, "d", 7))


def test_the_first_mail_of_a_host_is_not_overtaken_while_a_killed_postman_holds_it(
    host: Host,
) -> None:
    """The broker delivers it again after some seconds, behind mail that was stored later."""
    first, second = host.send("a"), host.send("b", "a")
    host.take(second)
    assert (host.ids(), second.is_gone) == ([], False)
    host.take(first)
    host.take(second)
    assert host.ids() == ["a", "b"]


def test_a_message_that_was_delivered_is_acknowledged_and_skipped(host: Host) -> None:
    first = host.send("a")
    host.take(first)
    host.take(first)  # the broker has not got the acknowledgement
    assert host.ids() == ["a"]
    assert host.counted() == 1


def test_a_repeated_message_that_cannot_be_delivered_is_counted_once(host: Host) -> None:
    """Otherwise its sender, which was away, would look like an old copy of itself."""
    host.take(host.send("a", to="nobody"))
    host.take(host.send("a", to="nobody", headers={AGAIN: "1"}))
    assert (host.counted(), host.confirmed()) == (1, Received(1, "a", 2))


def test_a_message_that_is_twice_in_a_batch_is_delivered_once(host: Host) -> None:
    """The sender began a new run before the first one was received."""
    host.send("a")
    host.send("b", "a")
    host.send("a", headers={AGAIN: "1"})
    host.send("b", "a", headers={AGAIN: "1"})
    host.send("c", "b")
    host.take()
    assert host.ids() == ["a", "b", "c"]
    assert host.confirmed() == Received(3, "c", 5)


@pytest.mark.parametrize("headers", [None, {}, {KEY: "a"}, {AFTER: ""}])
def test_a_message_without_the_headers_of_a_line_is_dropped(
    host: Host, headers: dict[str, str] | None
) -> None:
    """Otherwise the broker would deliver it forever."""
    odd = host.broker.store("mail.h1.h2", line("a"), headers)
    host.take()
    assert host.ids() == []
    assert odd.is_gone
    assert host.confirmed() is None


@pytest.mark.parametrize("subject", ["mail.h9.h2", "command.h1.h2", "mail.h1", "mail.h1.h2.x", ""])
def test_a_message_of_another_subject_is_dropped(host: Host, subject: str) -> None:
    odd = host.broker.store(subject, line("a"), {KEY: "a", AFTER: ""})
    host.take()
    assert host.ids() == []
    assert odd.is_gone


def test_each_host_has_an_order_of_its_own(host: Host) -> None:
    host.send("a")
    host.send("x", host="h3")
    host.send("b", "a")
    host.send("y", "x", host="h3")
    host.take()
    senders = {mail.id: mail.sender for mail in host.post.inbox("bob").peek()}
    assert senders == {
        "a": "dora@project@h2", "b": "dora@project@h2", "x": "dora@project@h3",
        "y": "dora@project@h3",
    }  # fmt: skip
    assert (host.confirmed("h2"), host.confirmed("h3")) == (
        Received(2, "b", 3), Received(2, "y", 4),
    )  # fmt: skip


def test_messages_up_to_the_confirmed_one_are_skipped_after_a_restart(host: Host) -> None:
    old = [host.send("a"), host.send("b", "a")]
    new = host.send("c", "b")
    host.restart(Received(2, "b", 2), suspected=3)
    host.take()
    assert host.ids() == ["c"]
    assert all(one.is_gone for one in (*old, new))


def test_a_number_that_the_broker_has_lost_does_not_hide_new_mail(host: Host) -> None:
    """The broker came back without its last messages, and gives their numbers again."""
    host.restart(Received(9, "z", 9), suspected=0)
    host.take(host.send("a"))
    assert host.ids() == ["a"]


def test_a_disk_error_leaves_all_mail_in_the_broker_and_the_counts_unchanged(host: Host) -> None:
    host.take(host.send("a"))
    sent = [host.send("b", "a"), host.send("c", "b", to="carol"), host.send("e", "d")]
    inbox = host.paths.inbox("carol")
    inbox.mkdir()
    host.take()
    assert not any(one.is_gone for one in sent)
    assert host.confirmed() == Received(1, "a", 1)
    inbox.rmdir()
    host.take()
    assert (host.ids(), host.ids("carol")) == (["a", "b"], ["c"])
    assert [one.is_gone for one in sent] == [True, True, False]
    confirmed = host.confirmed()
    assert confirmed is not None
    assert confirmed[1:] == ("c", 3)


@pytest.mark.parametrize("reason", ["again", "delivered", "suspected"])
def test_a_message_that_may_be_known_is_looked_for_in_the_inbox(host: Host, reason: str) -> None:
    """The postman was killed after it wrote the inbox and before it confirmed."""
    host.take(host.send("a"))
    host.restart(None, suspected=1 if reason == "suspected" else 0)
    again = host.send("a", headers={AGAIN: "1"} if reason == "again" else {})
    again.deliveries = int(reason == "delivered")
    host.receiver._suspected = again.number if reason == "suspected" else 0
    host.take(again, host.send("b", "a"))
    assert host.ids() == ["a", "b"]
    assert host.counted() == 2


def test_the_same_id_of_another_sender_is_a_different_message(host: Host) -> None:
    """Senders choose ids, so a reused id must not block the mail of another sender."""
    host.post.send(Message(id="m", sender="carol", to="bob", content="here"))
    host.broker.store("mail.h1.h3", line("m"), {KEY: "1", AFTER: "", AGAIN: "1"})
    host.broker.store("mail.h1.h2", line("m", sender="emil"), {KEY: "2", AFTER: "", AGAIN: "1"})
    host.broker.store("mail.h1.h2", line("m"), {KEY: "3", AFTER: "2", AGAIN: "1"})
    host.take()
    senders = [mail.sender for mail in host.post.inbox("bob").peek()]
    assert senders[0] == "carol"
    assert sorted(senders[1:]) == ["dora@project@h2", "dora@project@h3", "emil@project@h2"]


def test_a_suspected_line_without_a_receiver_is_answered_and_does_not_block_others(
    host: Host,
) -> None:
    host.send("a", to="nobody", headers={AGAIN: "1"})
    host.broker.store("mail.h1.h2", b"rubbish", {KEY: "b", AFTER: "a", AGAIN: "1"})
    host.send("c", "b", to="../x", headers={AGAIN: "1"})
    host.send("d", "c", headers={AGAIN: "1"})
    host.take()
    assert host.ids() == ["d"]
    told = HostPlaces(host.paths).outbox("h2").read_text()
    assert "no teammate named 'nobody'" in told


@pytest.mark.parametrize(
    ("counted", "confirmed", "told"),
    [
        (None, None, []),
        (4, None, []),
        (5, Received(5, "a", 7), []),
        (6, Received(5, "a", 7), []),
        (
            2,
            Received(5, "a", 7),
            ["this team's folder is an old copy: 3 messages from it are gone"],
        ),
        (
            None,
            Received(5, "a", 7),
            ["this team's folder is a new one: 5 messages from it came to an earlier one"],
        ),
    ],
)
def test_a_lost_or_old_folder_is_reported_once_with_its_count(
    host: Host, counted: int | None, confirmed: Received | None, told: list[str]
) -> None:
    path = HostPlaces(host.paths).received("h2")
    if counted is not None:
        path.write_text(f'{{"n": {counted}}}\n')
    for _ in range(2):
        host.restart(confirmed, suspected=7)
    assert host.reports == [("h2", one) for one in told]
    if confirmed is not None:
        assert host.counted() == max(counted or 0, confirmed.n)


@pytest.mark.parametrize(
    "value", [b"", b"{", b"[]", b'{"n": 1}', b'{"n": "1", "key": "a", "number": 1}', b"[" * 9999]
)
def test_an_invalid_confirmation_is_ignored(value: bytes) -> None:
    assert Received.decode(value) is None
    assert Received.decode(Received(1, "a", 2).encode()) == Received(1, "a", 2)
