"""The links of one host: whom it has one with, and what it says where one is held up."""

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
    """Takes what arrives."""

    def deliver(self, host: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
        """Do nothing with mail."""

    def act(self, host: str, line: dict[str, Any]) -> None:
        """Do nothing with requests."""


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
    """Return what the person reads."""
    return [mail.content for mail in Mailbox(links.post.paths, "lead").peek()]


def damage(links: Links, host: str = "h3") -> Outbox:
    """Make an outbox whose first line is none of ours."""
    outbox = Outbox(links.post.paths, host, durable=False)
    outbox.append(MAIL, to="bob", message={"id": "1", "from": "alice", "content": "x"})
    content = outbox.path.read_bytes()
    outbox.path.write_bytes(b"\0" * 20 + content[20:])
    return outbox


@pytest.mark.parametrize("host", ["h1", "../x", "h 2", ""])
def test_a_frame_of_what_is_no_other_host_makes_no_link(links: Links, host: str) -> None:
    """A name is a part of paths; and this host has no mail for itself."""
    links.connected(0.0)
    links.start([host])
    links.round({host, f"{host}.jsonl"}, [(host, HELLO)], 0.0)
    links.woken(host, 0.0)
    assert links.hosts == set()
    assert links.sent() == []
    assert links.due_seconds(0.0) == math.inf


def test_a_broker_that_invents_names_makes_a_thousand_links_at_most(links: Links) -> None:
    links.round(set(), [(f"h{number}", HELLO) for number in range(2, 1100)], 0.0)
    assert len(links.hosts) == 1000
    links.round(set(), [("h2", HELLO)], 0.0)
    assert [host for host, _ in links.sent()][-1] == "h2", "those that are there go on"


def test_nothing_is_asked_without_a_connection_and_all_hosts_with_one(links: Links) -> None:
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


def test_a_host_that_is_there_again_is_asked_at_once_if_something_is_open(links: Links) -> None:
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


def test_a_host_that_is_forgotten_is_asked_no_more_and_comes_back_as_a_new_one(
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


def test_a_damaged_outbox_that_cannot_be_mended_is_said_and_tried_again(
    links: Links, log: Path
) -> None:
    """Its mail waits there: the person has to look, and is told once."""
    outbox = damage(links)
    kept = outbox.path.read_bytes()
    links.outbox = lambda host: Unwritable(links.post.paths, host, durable=False)
    links.start(["h3"])
    links.connected(0.0)
    assert links.due_seconds(0.0) == 3.0
    (said,) = told(links)
    assert said.startswith("About the host h3: nothing goes there: a file in ")
    assert "is damaged (its first line is none of ours); move it out of there" in said
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
    """An outbox on a disk that is full."""

    def repair(self) -> bool:
        """Find no room."""
        raise StoreError("no space left on device")


def test_a_link_that_cannot_be_made_holds_up_no_other(links: Links, log: Path) -> None:
    """A folder stands where its cursor would be; what comes of it is not confirmed to anybody."""
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


def test_trouble_with_an_outbox_is_logged_once_and_looked_at_again(links: Links, log: Path) -> None:
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


def test_what_cannot_be_told_by_mail_is_shown_all_the_same(links: Links, log: Path) -> None:
    inbox = links.post.paths.inbox("lead")
    inbox.unlink()
    inbox.mkdir()
    links.report("h2", "it is gone")
    assert "not told" in log.read_text()
    assert [one.text for one in links.views.get("h2").reports] == ["it is gone"]


def test_lines_of_an_epoch_that_is_not_known_here_have_the_other_side_asked(
    tmp_path: Path,
) -> None:
    """A frame of yesterday decides nothing: it is not taken, and not confirmed."""
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
def test_what_is_no_frame_is_passed_over(payload: bytes) -> None:
    """Of a later program, say, or of no program of ours."""
    assert frames.decode(payload) is None


def test_a_receipt_reads_as_it_was_written() -> None:
    receipt = frames.ReceiptFrame("s", Cursor("e", 7, "c"))
    assert frames.decode(receipt.encode()) == receipt
