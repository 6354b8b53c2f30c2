"""Lines of a link in batches: each is delivered, recorded and confirmed before the next."""

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
    """Two connected sides with no lines in transit."""
    with closing(World(tmp_path)) as made:
        made.connect()
        made.left.send()
        made.heal()
        yield made


def send_all(world: World, count: int = LINES) -> list[str]:
    """Send from left to right; the lines have arrived and are not processed yet."""
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
    """The sender can refill the window while the other batches are written to disk."""
    sent, link = send_all(world), world.right.link
    for done in (BATCH_LINES, 2 * BATCH_LINES, LINES):
        assert link.pending
        assert link.due_seconds(world.now) == 0
        link.finish(world.now)
        assert world.right.inbox.ids()[1:] == sent[:done]
        assert receipts(world.right) == [1 + done]
    assert not link.pending
    assert link.due_seconds(world.now) > 0


def test_a_batch_that_fails_discards_the_batches_behind_it(world: World) -> None:
    """Lines behind a gap are not delivered; all of them arrive again, in order."""

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


def test_lines_delivered_before_a_failure_are_recognized_when_they_arrive_again(
    world: World,
) -> None:
    """For example, one inbox was written and the next one was locked by another program."""

    class Half(Inbox):
        def deliver(self, _: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
            Inbox.deliver(self, _, lines[:1], suspected=suspected)
            raise StoreError("the other one is locked")

    for _ in range(WINDOW_LINES):  # beyond the possible duplicates of a restart
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


def test_a_hello_in_the_middle_does_not_lose_lines(world: World) -> None:
    """The other side reports its position; the lines that have arrived are still the next ones."""
    sent = send_all(world, MANY)
    world.right.link.connected(world.now)
    while world.exchange():
        pass
    assert world.right.inbox.ids()[1:] == sent
    assert not world.left.link.outgoing.waiting


def test_lines_of_an_old_epoch_are_not_taken_for_lines_of_the_new_one(world: World) -> None:
    """The sender lost its folder while its lines waited here."""
    send_all(world, MANY)
    world.left.come_back(world.folder / "none", world.now)
    later = [world.left.send() for _ in range(BATCH_LINES)]
    world.look(world.left)
    for _ in range(4):  # hello, answer with a hello, answer, lines
        for side in world.sides:
            payloads, side.out[:] = list(side.out), []
            for payload in payloads:
                world.other(side).link.heard(payload, world.now)
    world.heal()
    assert world.right.inbox.ids()[1:] == later
    assert not world.left.link.outgoing.waiting


def test_no_more_lines_are_kept_than_a_sender_may_have_in_transit(world: World) -> None:
    """A host that sends without end does not exhaust the memory."""
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
