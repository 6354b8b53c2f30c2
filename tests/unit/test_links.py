"""The links of one host: its peers, and its reports when a link is blocked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.hosts.cursor import Cursor
from teamd.hosts.far import FarHosts
from teamd.hosts.lines import MAIL, OutLine
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import Views
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.postman import frames
from teamd.postman.frames import HelloFrame, LineFrame
from teamd.postman.links import Links
from tests.hosts.wire import World
from tests.unit.life import enrol

HELLO = HelloFrame(session="s", ask="q").encode()


class Nobody:
    """Accepts and ignores all lines."""

    def deliver(self, host: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
        """Ignore mail."""

    def act(self, host: str, line: dict[str, Any]) -> None:
        """Ignore requests."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def links(tmp_path: Path, log: Path) -> Iterator[Links]:
    """The links of h1, which is not connected yet."""
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths)
    HostPlaces(paths).create()
    post = MailRouter(
        paths, durable=False, max_bytes=9999, hosts=FarHosts(paths, "h1", durable=False)
    )
    with closing(Journal(log, "postman")) as journal:
        journal.note("begins")
        yield Links(
            "h1", lambda host: Outbox(paths, host, durable=False), Nobody(), Views(paths), post,
            journal, durable=False,
        )  # fmt: skip


def told(links: Links) -> list[str]:
    """Return the person's mail."""
    return [mail.content for mail in Mailbox(links.post.paths, "lead").peek()]


def damage(links: Links, host: str = "h3") -> Outbox:
    """Write an outbox whose first line is invalid."""
    outbox = Outbox(links.post.paths, host, durable=False)
    outbox.append(MAIL, to="bob", message={"id": "1", "from": "alice", "content": "x"})
    content = outbox.path.read_bytes()
    outbox.path.write_bytes(b"\0" * 20 + content[20:])
    return outbox


@pytest.mark.parametrize("host", ["h1", "../x", "h 2", ""])
def test_a_frame_of_an_invalid_host_or_of_this_host_makes_no_link(links: Links, host: str) -> None:
    """A name is part of paths; and this host has no mail for itself."""
    links.connected(0.0)
    links.start([host])
    links.round({host, f"{host}.jsonl"}, [(host, HELLO)], 0.0)
    links.woken(host, 0.0)
    assert links.hosts == set()
    assert links.sent() == []
    assert links.due_seconds(0.0) == math.inf


def test_a_broker_that_invents_host_names_causes_at_most_a_thousand_links(links: Links) -> None:
    links.round(set(), [(f"h{number}", HELLO) for number in range(2, 1100)], 0.0)
    assert len(links.hosts) == 1000
    links.round(set(), [("h2", HELLO)], 0.0)
    assert [host for host, _ in links.sent()][-1] == "h2", "those that are there go on"


def test_hellos_are_sent_to_all_hosts_but_only_with_a_connection(links: Links) -> None:
    Outbox(links.post.paths, "h3", durable=False).append(MAIL, to="bob", message={"id": "1"})
    links.start(["h2", "h3"])
    links.round(None, [], 0.0)
    links.woken("h3", 0.0)
    assert links.sent() == []
    links.connected(0.0)
    asked = [(host, json.loads(frame)["ask"]) for host, frame in links.sent()]
    assert sorted(host for host, _ in asked) == ["h2", "h3"]
    assert all(ask for _, ask in asked)
    assert links.due_seconds(0.0) == 3.0, "and again, unless an answer comes"
    links.disconnected()
    assert links.due_seconds(0.0) == math.inf, "nobody would hear it"
    links.round(None, [], 9.0)
    assert links.sent() == []


def test_a_host_that_returns_gets_a_hello_at_once_if_lines_are_open(links: Links) -> None:
    links.start(["h2"])
    links.connected(0.0)
    links.sent()
    links.woken("h2", 1.0)
    ((host, frame),) = links.sent()
    assert (host, bool(json.loads(frame)["ask"])) == ("h2", True)
    asked = json.loads(frame)["ask"]
    links.round(set(), [("h2", HelloFrame(session="s", answers=asked).encode())], 1.0)
    links.sent()
    links.round(set(), [], 4.0)
    links.sent()
    links.woken("h2", 5.0)
    assert links.sent() == [], "nothing waits, and nobody is asked"


def test_a_forgotten_host_gets_no_more_hellos_and_returns_as_a_new_one(
    links: Links,
) -> None:
    links.start(["h2", "h3"])
    links.connected(0.0)
    links.sent()
    links.forget("h9")
    links.forget("h2")
    assert links.hosts == {"h3"}
    links.round(set(), [], 3.0)
    assert {host for host, _ in links.sent()} == {"h3"}
    links.round(set(), [("h2", HELLO)], 4.0)
    assert links.hosts == {"h2", "h3"}


def test_a_damaged_outbox_that_cannot_be_repaired_is_reported_and_retried(
    links: Links, log: Path
) -> None:
    """Its mail waits, so the person has to act, and is told once."""
    outbox = damage(links)
    kept = outbox.path.read_bytes()
    links.outbox = lambda host: Unwritable(links.post.paths, host, durable=False)
    links.start(["h3"])
    links.connected(0.0)
    assert links.due_seconds(0.0) == 3.0
    (said,) = told(links)
    assert said.startswith("About the host h3: nothing goes there: a file in ")
    assert "is damaged (its first line was not written by teamd); move it out of there" in said
    links.round(set(), [], 3.0)
    assert len(told(links)) == 1
    assert "outbox not repaired" in log.read_text()
    assert outbox.path.read_bytes() == kept
    links.outbox = lambda host: Outbox(links.post.paths, host, durable=False)
    links.round(set(), [], 6.0)
    assert "was damaged; it is kept as" in told(links)[-1]
    links.round(set(), [], 6.0)
    (asked,) = [frame for _, frame in links.sent() if json.loads(frame)["offer"]][-1:]
    assert json.loads(asked)["offer"]["last"] == 1, "what could be read goes on"


class Unwritable(Outbox):
    """An outbox on a full disk."""

    def repair(self) -> bool:
        """Fail for lack of space."""
        raise StoreError("no space left on device")


def test_a_link_that_cannot_be_created_does_not_block_the_others(links: Links, log: Path) -> None:
    """A folder is in place of its cursor; its lines are not confirmed."""
    links.connected(0.0)
    cursor = HostPlaces(links.post.paths).received("h2")
    cursor.mkdir()
    links.round(set(), [("h2", HELLO), ("h3", HELLO)], 0.0)
    assert links.hosts == {"h3"}
    assert {host for host, _ in links.sent()} == {"h3"}
    assert "no link" in log.read_text()
    cursor.rmdir()
    links.round(set(), [("h2", HELLO)], 1.0)
    assert links.hosts == {"h2", "h3"}


def test_an_error_at_an_outbox_is_logged_once_and_the_operation_retried(
    links: Links, log: Path
) -> None:
    links.start(["h2"])
    links.connected(0.0)
    outbox = HostPlaces(links.post.paths).outbox("h2")
    outbox.mkdir()
    for moment in (0.0, 0.0, 3.0):
        links.round({"h2.jsonl"}, [], moment)
    assert log.read_text().count("link held up") == 1
    assert told(links) == [], "trouble of the disk passes"
    outbox.rmdir()
    Outbox(links.post.paths, "h2", durable=False).append(MAIL, to="bob", message={"id": "1"})
    links.sent()
    links.round(set(), [], 6.0)
    assert [json.loads(frame)["offer"]["last"] for _, frame in links.sent()][:1] == [1]


def test_a_report_that_cannot_be_mailed_is_still_shown(links: Links, log: Path) -> None:
    inbox = links.post.paths.inbox("lead")
    inbox.unlink()
    inbox.mkdir()
    links.report("h2", "it is gone")
    assert "not told" in log.read_text()
    assert [one.text for one in links.views.get("h2").reports] == ["it is gone"]


def test_lines_of_an_unknown_epoch_cause_a_hello(
    tmp_path: Path,
) -> None:
    """An old frame is neither accepted nor confirmed."""
    with closing(World(tmp_path)) as world:
        world.connect()
        world.left.send()
        world.heal()
        world.right.out.clear()
        world.hear(world.right, LineFrame("another", b'{"n": 2}\n').encode())
        (asked,) = map(frames.decode, world.right.out)
        assert isinstance(asked, HelloFrame)
        assert asked.ask
        world.right.out.clear()
        world.hear(world.right, LineFrame("another", b'{"n": 2}\n').encode())
        assert world.right.out == [], "the question is open"
        assert world.right.inbox.ids() == ["a1"]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"[]", b"\xff", b'{"kind": "dance"}', b'{"kind": "hello", "session": "s"}',
        b'{"kind": "receipt", "session": 7}', b'{"kind": "receipt", "session": "s"}',
        b'{"kind": "receipt", "session": 7, "epoch": "e", "n": 1, "chain": "c"}',
        b'{"kind": "lines", "epoch": 7}\n', b"[" * 100_000,
    ],
)  # fmt: skip
def test_an_invalid_frame_is_ignored(payload: bytes) -> None:
    """For example, from a later program or from a foreign one."""
    assert frames.decode(payload) is None


def test_a_receipt_is_decoded_as_it_was_encoded() -> None:
    receipt = frames.ReceiptFrame("s", Cursor("e", 7, "c"))
    assert frames.decode(receipt.encode()) == receipt
