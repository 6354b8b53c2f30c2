"""Lines of a link in batches: each delivered, noted and confirmed before the next one is begun."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from teamd.errors import StoreError
from teamd.hosts.lines import MAIL, OutLine
from teamd.postman import frames
from teamd.postman.frames import LineFrame, ReceiptFrame
from teamd.postman.outgoing import WINDOW_LINES
from tests.hosts.wire import BATCH_LINES, Inbox, Side, World

LINES = 2 * BATCH_LINES + 1
MANY = 20 * BATCH_LINES


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two sides that know each other, with no lines on their way."""
    with closing(World(tmp_path)) as made:
        made.connect()
        made.left.send()
        made.heal()
        yield made


def send_all(world: World, count: int = LINES) -> list[str]:
    """Send from left to right; what was sent has come there, and nothing was done with it."""
    before = len(world.left.acknowledged)
    for _ in range(count):
        world.left.send()
    world.look(world.left)
    payloads, world.left.out[:] = list(world.left.out), []
    for payload in payloads:
        world.right.link.heard(payload, world.now)
    return world.left.acknowledged[before:]


def receipts(side: Side) -> list[int]:
    """Take the frames that a side has sent; return the numbers in its receipts."""
    found = [frames.decode(payload) for payload in side.out]
    side.out.clear()
    return [one.cursor.n for one in found if isinstance(one, ReceiptFrame)]


def test_each_batch_is_confirmed_before_the_next_is_delivered(world: World) -> None:
    """So that the sender fills the window while the rest is on its way to the disk."""
    sent, link = send_all(world), world.right.link
    for done in (BATCH_LINES, 2 * BATCH_LINES, LINES):
        assert link.pending
        assert link.due_seconds(world.now) == 0
        link.finish(world.now)
        assert world.right.inbox.ids()[1:] == sent[:done]
        assert receipts(world.right) == [1 + done]
    assert not link.pending
    assert link.due_seconds(world.now) > 0


def test_a_batch_that_fails_takes_the_rest_with_it(world: World) -> None:
    """What is behind a gap is not delivered; all of it comes again, in its order."""

    class Full(Inbox):
        def deliver(self, _: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
            raise StoreError(f"no room for {len(lines)}, {suspected}")

    sent, link = send_all(world), world.right.link
    sound = link.incoming.receiver
    link.incoming.receiver = Full(world.right.folder / "inbox", world.right.fuse)
    with pytest.raises(StoreError):
        link.finish(world.now)
    link.incoming.receiver = sound
    assert not link.pending
    link.finish(world.now)
    assert world.right.inbox.ids()[1:] == []
    world.heal()
    assert world.right.inbox.ids()[1:] == sent


def test_what_arrived_before_a_failure_is_known_as_it_comes_again(world: World) -> None:
    """As where one inbox was written and the next one was locked by somebody."""

    class Half(Inbox):
        def deliver(self, _: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
            Inbox.deliver(self, _, lines[:1], suspected=suspected)
            raise StoreError("the other one is locked")

    for _ in range(WINDOW_LINES):  # far behind what may be here since the postman began
        world.left.send()
    world.heal()
    sent, link = send_all(world), world.right.link
    sound = link.incoming.receiver
    link.incoming.receiver = Half(world.right.folder / "inbox", world.right.fuse)
    header, *raw = world.left.outbox.path.read_bytes().splitlines(keepends=True)
    frame = LineFrame(json.loads(header)["epoch"], b"".join(raw[-LINES:])).encode()
    for _ in range(3):
        link.heard(frame, world.now)
        with pytest.raises(StoreError):
            link.finish(world.now)
    link.incoming.receiver = sound
    world.heal()
    assert world.right.inbox.ids()[1 + WINDOW_LINES :] == sent


def test_a_question_in_the_middle_costs_no_line(world: World) -> None:
    """The other side tells where it stands: what came is still what comes next."""
    sent = send_all(world, MANY)
    world.right.link.connected(world.now)
    while world.exchange():
        pass
    assert world.right.inbox.ids()[1:] == sent
    assert not world.left.link.outgoing.waiting


def test_lines_of_another_epoch_are_not_taken_for_those_of_this_one(world: World) -> None:
    """The sender lost its folder while lines of it lay here."""
    send_all(world, MANY)
    world.left.come_back(world.folder / "none", world.now)
    later = [world.left.send() for _ in range(BATCH_LINES)]
    world.look(world.left)
    for _ in range(4):  # question, answer with a question, answer, lines
        for side in world.sides:
            payloads, side.out[:] = list(side.out), []
            for payload in payloads:
                world.other(side).link.heard(payload, world.now)
    world.heal()
    assert world.right.inbox.ids()[1:] == later
    assert not world.left.link.outgoing.waiting


def test_no_more_is_kept_than_a_sender_may_have_under_way(world: World) -> None:
    """A host that sends without end fills no memory."""
    roomy = replace(world.left.outbox, max_bytes=1 << 20)
    for number in range(2 * WINDOW_LINES):
        roomy.append(MAIL, to="bob", message={"id": f"m-{number}"})
    world.look(world.left)
    raw = world.left.outbox.path.read_bytes().splitlines(keepends=True)
    outgoing = world.left.link.outgoing
    assert outgoing.header is not None
    world.right.link.heard(LineFrame(outgoing.header.epoch, b"".join(raw[1:])).encode(), world.now)
    rounds = 0
    while world.right.link.pending:
        world.right.link.finish(world.now)
        rounds += 1
    assert (rounds - 1) * BATCH_LINES < WINDOW_LINES <= rounds * BATCH_LINES
