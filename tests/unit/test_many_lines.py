"""Mail of many lines, taken in batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.mail.spool import BatchLimit
from teamd.messages import Message

LINE = {"id": "a", "type": "t", "from": "f", "to": "bob", "content": "x", "timestamp": 1.5}


@pytest.fixture
def box(paths: TeamPaths) -> Mailbox:
    return Mailbox(paths, "bob", durable=False, max_bytes=30_000)


def fill(paths: TeamPaths, *lines: bytes) -> None:
    paths.inbox("bob").write_bytes(b"".join(lines))
    paths.inbox("bob").chmod(0o600)


def numbered(count: int, **more: Any) -> list[bytes]:
    facts = {**LINE, "content": "x" * 900, **more}
    return [json.dumps({**facts, "id": f"m{n}"}).encode() + b"\n" for n in range(count)]


LIMITS = [
    BatchLimit(),
    BatchLimit(messages=7, bytes=1 << 20),
    BatchLimit(messages=1000, bytes=20_000),
    BatchLimit(messages=1000, bytes=20_000, wary=True),
    BatchLimit(messages=1, bytes=10),
]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("ended", [True, False])
def test_every_line_is_delivered_once_whatever_lines_are_in_between(
    box: Mailbox, paths: TeamPaths, limit: BatchLimit, ended: bool
) -> None:
    lines = numbered(60)
    too_long = json.dumps({**LINE, "id": "long", "content": "x" * 30_000}).encode() + b"\n"
    odd = [b"\n", b'{"taken_as": "old"}\n', b"{torn\n", too_long, b'{"content": "nameless"}\n']
    content = b"".join([*lines[:30], *odd, *lines[30:]])
    fill(paths, content if ended else content.removesuffix(b"\n"))
    taken = list(take_all(box, limit))
    assert [one.content for one in taken].count("nameless") == 1
    names = [one.id for one in taken if one.content != "nameless"]
    assert names == [f"m{n}" for n in range(60)]
    assert paths.rejected("bob").read_bytes() == b"{torn\n" + too_long


def take_all(box: Mailbox, limit: BatchLimit) -> Iterator[Message]:
    while (batch := box.take(limit)).messages:
        assert limit.messages is None or len(batch.messages) <= limit.messages
        yield from batch.messages
        box.done(batch)


def test_one_overlong_line_among_many_is_rejected(box: Mailbox, paths: TeamPaths) -> None:
    too_long = json.dumps({**LINE, "id": "long", "content": "x" * 40_000}).encode() + b"\n"
    fill(paths, *numbered(40), too_long, *numbered(40))
    assert "long" not in [one.id for one in take_all(box, BatchLimit())]
    assert paths.rejected("bob").read_bytes() == too_long


def test_a_flood_that_would_fill_the_inbox_is_set_aside(paths: TeamPaths) -> None:
    """Mail counts while it is in the inbox: other senders would be refused for hours."""
    room = 1 << 20
    box = Mailbox(paths, "bob", durable=False, max_inbox_bytes=room)
    fill(paths, *numbered(700))
    assert paths.inbox("bob").stat().st_size > room // 2
    box.take(BatchLimit(messages=10, bytes=1 << 20))
    assert paths.inbox("bob").stat().st_size == 0
    box.put(Message(sender="eve", to="bob", content="x" * (room * 3 // 4)))
