"""Mail that goes out through the broker: runs of lines, confirmations and old copies."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

import pytest

from teamd.errors import LockTimeout
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import MAX_LINE_BYTES, ConfirmedPosition, Outbox, count_waiting
from teamd.hosts.places import HostPlaces
from teamd.postman.connection import BrokerConnection
from teamd.postman.sending import AFTER, AGAIN, KEY, Sender
from tests.unit.memory_broker import MemoryBroker
from tests.waiting import until

LINK = "h1>h2"


@dataclass
class Host:
    """The outbox of h1 for h2, and its sender over the newest connection."""

    outbox: Outbox
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    reports: list[str] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connect(None)

    def connect(self, confirmed: tuple[int, str] | None) -> None:
        """Begin a new connection, whose broker knows this confirmation."""
        self.sender = Sender(
            self.outbox, "h1", cast("BrokerConnection", self.broker), reachable=lambda: True,
            report=self.reports.append, is_old_copy=self.copies.append,
        )  # fmt: skip
        self.sender._resume(confirmed)

    def write(self, *ids: str) -> None:
        for made in ids:
            message = {"id": made, "from": "alice", "content": "x" * 50}
            self.outbox.append(to="bob", team="project", message=message)

    def keys(self) -> list[str]:
        return [line.key(LINK) for line in self.outbox.read()]

    def publish(self) -> bool:
        return asyncio.run(self.sender._publish())

    def headers(self) -> list[dict[str, str]]:
        """Return the headers of what was published since the last call."""
        found = [headers for _, _, headers in self.broker.published]
        self.broker.published.clear()
        return found

    def last_run(self) -> list[dict[str, str]]:
        """Return the headers of the last run published so far, and forget all."""
        found = self.headers()
        begins = max(n for n, one in enumerate(found) if one[AFTER] == "")
        return found[begins:]

    def position(self) -> ConfirmedPosition | None:
        return ConfirmedPosition.read(HostPlaces(self.outbox.paths).confirmed("h2"))


@pytest.fixture
def host(paths: TeamPaths) -> Host:
    HostPlaces(paths).create()
    return Host(Outbox(paths, "h2", durable=False, patience_seconds=0.05))


def test_each_line_names_the_one_before_it(host: Host) -> None:
    host.write("a", "b", "c")
    assert host.publish()
    keys = host.keys()
    assert {subject for subject, _, _ in host.broker.published} == {"mail.h2.h1"}
    found = [(headers[KEY], headers[AFTER]) for _, _, headers in host.broker.published]
    assert found == [(keys[0], ""), *((two, one) for one, two in pairwise(keys))]
    lines = host.outbox.path.read_bytes().splitlines()
    assert [data for _, data, _ in host.broker.published] == lines


def test_a_line_is_on_disk_before_it_is_published(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut takes back a line that the other host has confirmed."""
    published_at_sync = list[int]()

    def sync(fd: int) -> None:
        if os.path.samestat(os.fstat(fd), host.outbox.path.stat()):
            published_at_sync.append(len(host.broker.published))

    host.outbox = replace(host.outbox, durable=True)
    host.write("a")
    host.connect(None)
    for call in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, call, sync)
    host.publish()
    assert published_at_sync == [0]
    assert len(host.broker.published) == 1


def test_only_lines_from_before_the_connection_may_have_been_published(host: Host) -> None:
    host.write("a")
    host.connect(None)
    host.write("b")
    host.publish()
    assert [AGAIN in headers for headers in host.headers()] == [True, False]


def test_a_line_is_published_once_in_a_run(host: Host) -> None:
    host.write("a")
    host.publish()
    host.publish()
    host.write("b")
    host.publish()
    assert len(host.headers()) == 2


def test_a_confirmation_removes_all_lines_up_to_its_key(host: Host) -> None:
    host.write("a", "b", "c")
    host.publish()
    keys = host.keys()
    host.sender.confirm(2, keys[1])
    assert host.keys() == keys[2:]
    assert host.position() == ConfirmedPosition(2, keys[1], 0)
    host.sender.confirm(3, keys[2])
    assert host.keys() == []
    host.write("d")
    host.headers()
    host.publish()
    ((first, after),) = [(one[KEY], one[AFTER]) for one in host.headers()]
    assert (first, after) == (host.keys()[0], keys[2])


def test_confirmed_lines_stay_until_a_removal_is_worth_it(host: Host) -> None:
    """They no longer count as waiting, and are not published again."""
    host.write(*"abcdefgh")
    host.publish()
    keys = host.keys()
    host.sender.confirm(1, keys[0])
    assert len(host.keys()) == 8
    assert host.position() == ConfirmedPosition(1, keys[0], 1)
    assert count_waiting(host.outbox.paths, "h2") == 7
    host.headers()
    host.connect((1, keys[0]))
    host.publish()
    assert [one[KEY] for one in host.last_run()] == keys[1:]


def test_a_kill_between_a_confirmation_and_the_removal_does_not_look_like_an_old_copy(
    host: Host,
) -> None:
    host.write("a", "b")
    host.publish()
    first, last = host.keys()
    host.sender.confirm(1, first)
    with locks.locked(host.outbox.path), pytest.raises(LockTimeout):  # it ends before the removal
        host.sender.confirm(2, last)
    host.outbox.path.write_bytes(b"")  # a removal that reached the disk
    host.connect((2, last))
    assert host.copies == []
    assert host.position() == ConfirmedPosition(2, last, 0)


def test_a_confirmation_of_a_line_that_is_there_twice_keeps_the_lines_between(host: Host) -> None:
    host.write("a", "b", "c", "d")
    a, b, *rest = host.outbox.path.read_bytes().splitlines(keepends=True)
    host.outbox.path.write_bytes(b"".join((a, b, a, *rest)))
    host.publish()
    key, *others = host.keys()
    host.sender.confirm(1, key)
    host.connect((1, key))
    host.publish()
    assert [one[KEY] for one in host.last_run()] == others


@pytest.mark.parametrize("key", ["", "unknown"])
def test_an_unknown_confirmation_removes_nothing(host: Host, key: str) -> None:
    host.write("a", "b")
    host.publish()
    host.sender.confirm(7, key)
    assert len(host.keys()) == 2
    host.connect((7, key))
    assert len(host.keys()) == 2
    host.headers()
    host.publish()
    assert [one[AFTER] for one in host.last_run()] == ["", host.keys()[0]]


def test_an_unpublished_line_cannot_be_confirmed(host: Host) -> None:
    host.write("a", "b")
    host.sender.confirm(2, host.keys()[1])
    assert len(host.keys()) == 2


def test_after_a_refused_message_all_lines_are_published_again(host: Host) -> None:
    host.write("a", "b", "c")
    host.broker.refused = frozenset({2})
    assert not host.publish()
    host.broker.refused = frozenset()
    host.headers()
    host.sender._begin_run()
    assert host.publish()
    found = host.last_run()
    assert [one[AFTER] for one in found] == ["", *host.keys()[:2]]
    assert all(one[AGAIN] == "1" for one in found)


def test_lines_that_the_broker_drops_are_published_again_under_other_ids(host: Host) -> None:
    """The receiver may never get the dropped ones, and the next line names the last of them."""
    host.write("a", "b")
    host.publish()
    host.headers()
    host.sender._begin_run()
    host.write("c")
    assert host.publish()
    assert [one[AFTER] for one in host.last_run()] == ["", *host.keys()[:2]]
    ids = [(one.headers or {})["Nats-Msg-Id"] for one in host.broker.stored]
    assert len(ids) == len(set(ids)) == 6
    assert [(one.headers or {})[KEY] for one in host.broker.stored[-3:]] == host.keys()


def test_a_run_behind_confirmed_lines_begins_with_the_first_unconfirmed_one(host: Host) -> None:
    host.write("a", "b", "c")
    host.publish()
    keys = host.keys()
    host.sender.confirm(1, keys[0])
    host.headers()
    host.sender._begin_run()
    host.publish()
    found = [(one[KEY], one[AFTER]) for one in host.last_run()]
    assert found == [(keys[1], ""), (keys[2], keys[1])]


OLD_HEADER = b'{"epoch": "e", "first": 1, "chain": ""}\n'
REQUEST = b'{"n": 1, "chain": "x", "kind": "request", "id": "1"}\n'
OLD_MAIL = (
    b'{"n": 2, "chain": "x", "kind": "mail", "to": "bob", "team": "project", "message": {}}\n'
)


def test_an_outbox_of_the_version_before_is_sent_without_its_header_and_requests(
    host: Host,
) -> None:
    host.outbox.path.write_bytes(OLD_HEADER + REQUEST + OLD_MAIL + REQUEST)
    host.publish()
    assert [data for _, data, _ in host.broker.published] == [OLD_MAIL[:-1]]
    assert host.reports == []
    host.sender.confirm(1, host.broker.published[0][2][KEY])
    host.publish()
    assert host.outbox.path.read_bytes() == b""
    assert not list(host.outbox.path.parent.glob("*.rejected.jsonl"))


def test_the_old_header_does_not_count_as_waiting_before_and_after_a_confirmation(
    host: Host,
) -> None:
    host.outbox.path.write_bytes(OLD_HEADER + OLD_MAIL)
    host.write(*"abcdefgh")
    assert count_waiting(host.outbox.paths, "h2") == 9
    host.publish()
    host.sender.confirm(1, host.broker.published[0][2][KEY])
    assert OLD_HEADER in host.outbox.path.read_bytes()
    assert count_waiting(host.outbox.paths, "h2") == 8


@pytest.mark.parametrize(
    "damaged", [b"\0\xff\n", b"[]\n", b'{"kind": "mail"' + b" " * MAX_LINE_BYTES + b"}\n"],
    ids=["no text", "no object", "too long"],
)  # fmt: skip
def test_a_damaged_line_is_kept_aside_and_reported_and_the_rest_is_sent(
    host: Host, damaged: bytes
) -> None:
    host.write("a")
    with host.outbox.path.open("ab") as file:
        file.write(damaged)
    host.write("b")
    first, _, last = host.keys()
    host.publish()
    assert [one[KEY] for one in host.headers()] == [first], "the damaged line comes next"
    host.sender.confirm(1, first)
    host.publish()
    assert [(one[KEY], one[AFTER]) for one in host.headers()] == [(last, first)]
    assert host.reports == ["a line of what waits for it was damaged, and is not sent"]
    assert host.outbox.path.with_suffix(".rejected.jsonl").read_bytes() == damaged


def test_a_confirmation_behind_a_lost_broker_does_not_look_like_an_old_copy(host: Host) -> None:
    """The receiver had counted all lines when the broker lost its disk, and gets them again."""
    host.write("a", "b", "c", "d")
    host.publish()
    first, second, *_ = host.keys()
    host.sender.confirm(1, first)
    host.connect((4, second))
    assert host.copies == []


def test_an_old_copy_of_the_folder_is_noticed_by_the_counts(host: Host) -> None:
    host.write("a", "b")
    host.publish()
    keys = host.keys()
    for n, key in enumerate(keys, start=1):
        host.sender.confirm(n, key)
    host.connect((2, keys[1]))
    assert host.copies == []
    host.connect((5, "of a line that the copy does not have"))
    assert host.copies == [3]
    host.connect((5, "of a line that the copy does not have"))
    assert host.copies == [3], "once"


def test_a_confirmation_that_came_while_no_postman_ran_does_not_show_an_old_copy(
    host: Host,
) -> None:
    host.write("a", "b", "c")
    host.publish()
    keys = host.keys()
    host.sender.confirm(1, keys[0])
    host.connect((3, keys[2]))
    assert (host.copies, host.keys()) == ([], [])
    assert host.position() == ConfirmedPosition(3, keys[2], 0)


def test_a_long_backlog_is_published_up_to_a_limit_and_continues_with_confirmations(
    host: Host,
) -> None:
    host.write(*(f"m{number}" for number in range(600)))
    keys = host.keys()
    host.publish()
    assert [one[KEY] for one in host.headers()] == keys[:512]
    host.sender.confirm(100, keys[99])
    host.publish()
    assert [one[KEY] for one in host.headers()] == keys[512:]


def test_new_lines_and_confirmations_wake_the_sender(host: Host) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(host.sender.run(None))
        await until_published(host, 0)
        host.write("a")
        host.sender.changed.set()
        await until_published(host, 1)
        host.sender.confirm(1, host.keys()[0])
        host.write("b")
        host.sender.changed.set()
        await until_published(host, 2)
        task.cancel()

    asyncio.run(scenario())
    assert len(host.keys()) == 1


async def until_published(host: Host, count: int) -> None:
    await until(lambda: len(host.broker.published) == count, what=f"{count} published")
