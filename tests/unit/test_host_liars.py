"""A host that lies in any field of its frames does no harm to another one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from teamd.files.paths import TeamPaths
from teamd.hosts.cursor import Cursor, CursorFile
from teamd.hosts.far import FarHosts
from teamd.hosts.lines import MAIL, MAX_LINE_BYTES, OutLine
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import Views
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.postman import frames
from teamd.postman.frames import HelloFrame, LineFrame
from teamd.postman.incoming import Incoming
from teamd.postman.links import Links
from tests.hosts.wire import World
from tests.unit.life import enrol

LONG = "e" * 900_000
HALF = "\ud800"
OFFER: dict[str, Any] = {"epoch": "e", "first": 1, "chain": "", "former": None, "copied": 0}
CONFIRMED: dict[str, Any] = {"epoch": "e", "n": 0, "chain": ""}


class Nobody:
    """Accepts and ignores all lines."""

    def deliver(self, host: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
        """Ignore the input."""

    def act(self, host: str, line: dict[str, Any]) -> None:
        """Ignore the input."""


def hello(**facts: Any) -> bytes:
    offer = {**OFFER, "confirmed": CONFIRMED, "last": 5}
    said = {"kind": "hello", "session": "s", "ask": "", "answers": "q", "offer": offer}
    return json.dumps({**said, "received": None, **facts}).encode()


@pytest.mark.parametrize(
    ("facts", "confirmed"),
    [
        ({"epoch": LONG}, {}),
        ({"epoch": "\x1b[31m"}, {}),
        ({"chain": HALF}, {}),
        ({"chain": LONG}, {}),
        ({"first": 10**4000}, {}),
        ({"first": True}, {}),
        ({"former": LONG}, {}),
        ({"copied": -1}, {}),
        ({"last": 10**4000}, {}),
        ({}, {"chain": HALF}),
        ({}, {"n": 10**4000}),
        ({}, {"epoch": LONG}),
    ],
)
def test_an_offer_with_impossible_values_is_rejected(
    tmp_path: Path, facts: dict[str, Any], confirmed: dict[str, Any]
) -> None:
    """The values would be repeated, written into a cursor of fixed size, or hashed."""
    offer = {**OFFER, "confirmed": {**CONFIRMED, **confirmed}, "last": 5, **facts}
    heard = frames.decode(hello(offer=offer))
    assert isinstance(heard, HelloFrame)
    assert heard.offer is None
    assert not Incoming(
        "h2", CursorFile(tmp_path / "c", durable=False), Nobody(), window=256, report=print
    ).settle(heard.offer)


@pytest.mark.parametrize("key", ["session", "ask", "answers"])
@pytest.mark.parametrize("value", [LONG, HALF, "\n", 1, None, ["q"]])
def test_a_hello_whose_names_cannot_be_encoded_is_rejected(key: str, value: Any) -> None:
    assert frames.decode(hello(**{key: value})) is None


def test_the_longest_valid_cursor_fits_into_its_file(tmp_path: Path) -> None:
    """A longer one would overwrite the previous cursor, and a kill would then lose both."""
    longest = Cursor.from_json({"epoch": "e" * 40, "n": 10**18 - 1, "chain": "f" * 32})
    assert longest is not None
    file = CursorFile(tmp_path / "h2.json", durable=False)
    for _ in range(3):
        file.write(longest)
    assert file.path.stat().st_size == 512
    assert CursorFile(file.path, durable=False).read() == longest


def test_lines_too_far_ahead_or_with_a_false_chain_are_rejected(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "h2.json", durable=False)
    file.write(Cursor("e", 0, ""))
    incoming = Incoming("h2", file, Nobody(), window=256, report=print)
    ahead = OutLine.make(10**17, "", b'"kind": "mail"}')
    false = b'{"n": 1, "chain": "' + b"0" * 32 + b'", "kind": "mail"}\n'
    for raw in (ahead.raw, false, b"\xff\n", b"\n", ahead.raw + false):
        incoming.gather(LineFrame("e", raw))
    incoming.take()
    assert incoming.cursor == Cursor("e", 0, "")


@pytest.fixture
def links(tmp_path: Path) -> Iterator[Links]:
    """The links of h1, which is connected."""
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths)
    HostPlaces(paths).create()
    post = MailRouter(
        paths, durable=False, max_bytes=9999, hosts=FarHosts(paths, "h1", durable=False)
    )
    with closing(Journal(tmp_path / "log", "postman")) as journal:
        made = Links(
            "h1", lambda host: Outbox(paths, host, durable=False), Nobody(), Views(paths), post,
            journal, durable=False,
        )  # fmt: skip
        made.connected(0.0)
        yield made


def greet(links: Links, number: int, received: Cursor | None = None) -> list[bytes]:
    """Answer the open hello as h3 would; return the frames then sent to h3."""
    links.round(set(), [("h3", hello(session=f"s{number}", answers=""))], 0.0)
    asked = [json.loads(frame.partition(b"\n")[0]) for _, frame in links.sent()]
    question = next((one["ask"] for one in asked if one.get("ask")), "none")
    epoch, former = f"e{number}", f"e{number - 1}" if number % 2 else None
    offer = {
        **OFFER,
        "epoch": epoch,
        "former": former,
        "confirmed": {**CONFIRMED, "epoch": epoch, "n": 1},
        "last": 1,
    }
    known = None if received is None else received.to_json()
    answer = hello(session=f"s{number}", answers=question, offer=offer, received=known)
    links.round(set(), [("h3", answer)], 0.0)
    return [frame for _, frame in links.sent()]


def test_a_host_that_repeatedly_loses_its_folder_does_not_fill_any_mailbox(links: Links) -> None:
    for number in range(40):
        greet(links, number)
    told = Mailbox(links.post.paths, "lead").peek()
    assert len(told) == 10
    assert told[0].content.startswith("About the host h3: this team's folder is a new one")
    assert "Further ones within the hour stand in `teamctl hosts` only." in told[-1].content
    assert not links.views.get("h3").reports[-1].text.startswith("h3"), "faces name it as well"


def test_a_damaged_outbox_that_a_sender_set_aside_is_reported(links: Links) -> None:
    """The kept file is found by its name when its folder changes, and not at each message."""
    links.start(["h3"])
    outbox = Outbox(links.post.paths, "h3", durable=False)
    outbox.append(MAIL, to="bob", message={"id": "1", "from": "alice", "content": "x"})
    with outbox.path.open("ab") as file:
        file.write(b'{"from": "lead"}\n')
    assert outbox.repair()
    links.round({path.name for path in outbox.path.parent.iterdir()}, [], 0.0)
    (told,) = Mailbox(links.post.paths, "lead").peek()
    assert "was damaged; it is kept as" in told.content


def test_an_outbox_set_aside_while_no_postman_ran_is_reported_by_the_next_postman(
    links: Links,
) -> None:
    outbox = Outbox(links.post.paths, "h3", durable=False)
    outbox.append(MAIL, to="bob", message={"id": "1", "from": "alice", "content": "x"})
    with outbox.path.open("ab") as file:
        file.write(b'{"from": "lead"}\n')
    assert outbox.repair()
    links.start(["h3"])
    (told,) = Mailbox(links.post.paths, "lead").peek()
    assert "was damaged; it is kept as" in told.content


def test_damage_found_twice_before_the_new_file_is_opened_is_repaired_once(
    links: Links,
) -> None:
    """The second time the file is already repaired."""
    outbox = Outbox(links.post.paths, "h3", durable=False)
    for number in range(3):
        outbox.append(MAIL, to="bob", message={"id": f"{number}", "from": "al", "content": "x"})
    header, first, *rest = outbox.path.read_bytes().splitlines(keepends=True)
    torn = b"\0" * (len(first) - 1) + b"\n"
    outbox.path.write_bytes(b"".join([header, torn, *rest]))
    links.start(["h3"])
    start = Cursor(json.loads(header)["epoch"], 0, "")
    (ask,) = [found["ask"] for _, raw in links.sent() if (found := json.loads(raw)).get("ask")]
    answer = HelloFrame(session="s", answers=ask, received=start)
    links.round(
        set(), [("h3", answer.encode()), ("h3", HelloFrame(session="s", ask="x").encode())], 0.0
    )
    (told,) = Mailbox(links.post.paths, "lead").peek()
    assert "was damaged; it is kept as" in told.content
    assert len(outbox.path.read_bytes().splitlines()) == 3, "a header, and what could be read"


@pytest.mark.parametrize(
    "line",
    [
        b'{"n": 2, "chain": "' + b"0" * 32 + b'", "kind": "mail"}\n',
        OutLine.make(7, "", b'"kind": "mail"}').raw,
        b'{"from": "lead"}\n',
        b"\xff\n",
        MAX_LINE_BYTES + 1,
        10 * MAX_LINE_BYTES,
    ],
    ids=["false chain", "far ahead", "no number", "no text", "a byte too long", "10 MB"],
)
def test_a_line_written_into_an_outbox_by_hand_is_reported_and_never_sent(
    links: Links, line: bytes | int
) -> None:
    """No host would accept it, and an overlong one would end the connection."""
    outbox = Outbox(links.post.paths, "h3", durable=False)
    outbox.append(MAIL, to="bob", message={"id": "1", "from": "alice", "content": "x"})
    first = OutLine.decode(outbox.path.read_bytes().splitlines(keepends=True)[1])
    assert first is not None
    if isinstance(line, int):
        line = OutLine.make(2, first.chain, b'"x": "'.ljust(line - 2, b"x") + b'"}').raw
    with outbox.path.open("ab") as file:
        file.write(line)
    links.start(["h3"])
    links.round({"h3"}, [], 0.0)
    links.sent()
    start = Cursor(json.loads(outbox.path.read_bytes().partition(b"\n")[0])["epoch"], 0, "")
    sent = b"".join(greet(links, 1, start))
    links.round({"h3"}, [], 0.0)
    assert line not in sent + b"".join(frame for _, frame in links.sent())
    told = [one.content for one in Mailbox(links.post.paths, "lead").peek()]
    assert any("the file of what waits for it was damaged; it is kept as" in one for one in told)
    (kept,) = outbox.path.parent.glob("h3.damaged-*")
    assert line in kept.read_bytes()
    assert line not in outbox.path.read_bytes()


class Faulty(Nobody):
    """Raises an unexpected error for the mail of one host."""

    def deliver(self, host: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
        """Raise for h3."""
        if host == "h3":
            raise LookupError(lines, suspected)


def test_an_internal_error_at_one_host_does_not_block_the_others_and_is_reported_once(
    links: Links,
) -> None:
    links.receiver = Faulty()
    greet(links, 1)
    frame = LineFrame("e1", OutLine.make(2, "", b'"kind": "mail"}').raw).encode()
    for _ in range(2):
        links.round(set(), [("h3", frame)], 0.0)
        assert links.due_seconds(0.0) == 3.0, "it is tried again, and what came is forgotten"
    told = [one.content for one in Mailbox(links.post.paths, "lead").peek()]
    assert sum("meets a fault of this program" in one for one in told) == 1


def test_a_host_that_confirms_unsent_lines_rarely_causes_a_rewrite_of_the_outbox(
    tmp_path: Path,
) -> None:
    """It looks like an old copy of a folder; rewriting a whole backlog takes seconds."""
    with closing(World(tmp_path)) as world:
        sent = [world.left.send() for _ in range(5)]
        world.connect()
        epochs = []
        for _ in range(40):
            epochs += lie(world)
            world.wait(3)
        assert len(set(epochs)) == 1 + 2, "two in two minutes"
        world.right.restart(world.now)  # an honest host again
        world.heal()
        assert world.right.inbox.ids() == sent


def lie(world: World) -> list[str]:
    """Let the left side say hello, and confirm a line that was never sent; return its epochs.

    The other fields of the answer are unchanged.
    """
    world.left.link.woken(world.now)
    epochs, told = [], list(world.left.out)
    world.left.out.clear()
    for frame in map(frames.decode, told):
        assert isinstance(frame, HelloFrame)
        assert frame.offer is not None
        epochs.append(epoch := frame.offer.header.epoch)
        far = Cursor(epoch, 10**17, "0" * 32)
        answer = HelloFrame(session="liar", answers=frame.ask, received=far)
        world.hear(world.left, answer.encode())
    return epochs
