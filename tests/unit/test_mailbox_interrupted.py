"""Every point at which a reader can be killed, as the files that it leaves behind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import EMPTY, Mailbox
from teamd.mail.spool import first_position
from teamd.messages import Message


def lines(*ids: str) -> bytes:
    """Return lines of equal length: a timestamp of now has 15 to 17 digits."""
    return b"".join(
        Message(sender="alice", to="bob", content=f"text {n}", id=n, timestamp=1.8e9).encode()
        for n in ids
    )


def marker(batch: str) -> bytes:
    return b'{"taken_as": "%s"}\n' % batch.encode()


def taken(batch: str, *ids: str) -> bytes:
    return first_position(batch).header() + lines(*ids)


def done(batch: str, *ids: str) -> bytes:
    whole = taken(batch, *ids)
    header = first_position(batch).header()
    return replace(first_position(batch), at=len(whole)).header() + whole[len(header) :]


@dataclass(frozen=True, kw_only=True)
class Left:
    """The content of the two files, and the expected deliveries.

    Attributes:
        first: the ids of the next batch.
        later: the ids of the batch after it.
        kept: the lines that were already rejected.
        old: the ids that an earlier reader had taken.
    """

    inbox: bytes
    taken: bytes | None = None
    first: str
    later: str = ""
    kept: bytes = b""
    old: str = ""
    rejected: int = 0


CASES = {
    "before anything": Left(inbox=lines("a", "b"), first="ab"),
    "in the middle of the marker": Left(
        inbox=lines("a", "b") + marker("1")[:9], first="ab", rejected=1
    ),
    "marker without file": Left(inbox=lines("a", "b") + marker("1"), first="ab"),
    "marker without file, new mail behind": Left(
        inbox=lines("a", "b") + marker("1") + lines("c"), first="abc"
    ),
    "twice marker without file": Left(
        inbox=lines("a") + marker("1") + lines("b") + marker("2") + lines("c"), first="abc"
    ),
    "file, not truncated": Left(
        inbox=lines("a", "b") + marker("1"), taken=taken("1", "a", "b"), first="ab", old="ab"
    ),
    "file, not truncated, new mail behind": Left(
        inbox=lines("a", "b") + marker("1") + lines("c", "d"),
        taken=taken("1", "a", "b"),
        first="ab",
        later="cd",
        old="ab",
    ),
    "file of the second try, not truncated": Left(
        inbox=lines("a") + marker("1") + lines("b") + marker("2") + lines("c"),
        taken=taken("2", "a", "b"),
        first="ab",
        later="c",
        old="ab",
    ),
    "file of the first try, marker of the second": Left(
        inbox=lines("a") + marker("1") + lines("b") + marker("2") + lines("c"),
        taken=taken("1", "a"),
        first="a",
        later="bc",
        old="a",
    ),
    "file, truncated": Left(inbox=b"", taken=taken("1", "a", "b"), first="ab", old="ab"),
    "file, truncated, new mail": Left(
        inbox=lines("c"), taken=taken("1", "a", "b"), first="ab", later="c", old="ab"
    ),
    "file, truncated, marker of the next": Left(
        inbox=lines("c") + marker("2"), taken=taken("1", "a"), first="a", later="c", old="a"
    ),
    "file, all done, not truncated": Left(
        inbox=lines("a") + marker("1"), taken=done("1", "a"), first=""
    ),
    "file, all done, not truncated, new mail behind": Left(
        inbox=lines("a") + marker("1") + lines("b", "c"), taken=done("1", "a"), first="bc"
    ),
    "file of a rejected line, not truncated": Left(
        inbox=b"hello\n" + marker("1"),
        taken=taken("1") + b"hello\n",
        kept=b"hello\n",
        first="",
        rejected=1,
    ),
    "file of a rejected line, not moved on": Left(
        inbox=b"",
        taken=taken("1") + b"hello\n" + lines("a"),
        kept=b"hello\n",
        first="a",
        old="a",
        rejected=1,
    ),
    "done": Left(inbox=b"", first=""),
}


def earlier(at: int, inbox: bytes) -> bytes:
    """Return a header of the version that left taken mail in the inbox."""
    digest = hashlib.blake2b(inbox, digest_size=16).hexdigest()
    figures = f'"at": "{at:015}", "tries": "000", "singly": "{0:015}", "holder": "0000000042"'
    counts = f'"crashes": "000", "rejected": "{0:015}"'
    inbox_part = f'"inbox": "{len(inbox):015}:{digest}"'
    return f'{{"batch": "1", {figures}, {counts}, {inbox_part}}}\n'.encode()


NAMELESS = b'{"content": "x"}\n' * 2 + marker("m")
EARLIER = {
    "in hand": (lines("a", "b"), earlier(0, lines("a", "b")), ["a", "b"]),
    "in hand, new mail behind": (lines("a") + lines("b"), earlier(0, lines("a")), ["a", "b"]),
    "one delivered": (lines("a", "b"), earlier(len(lines("a")), lines("a", "b")), ["b"]),
    "all delivered": (lines("a"), earlier(len(lines("a")), lines("a")), []),
    "all delivered, new mail behind": (
        lines("a") + lines("b"),
        earlier(len(lines("a")), lines("a")),
        ["b"],
    ),
    "an older batch": (lines("a", "b"), earlier(len(lines("c")), lines("c")), ["a", "b"]),
    "named by a marker": (NAMELESS, earlier(0, NAMELESS), ["m-34", "m-17"]),
    "emptied": (lines("a"), b"", ["a"]),
}


@pytest.mark.parametrize(("inbox", "header", "expected"), EARLIER.values(), ids=list(EARLIER))
def test_mail_taken_by_an_earlier_version_keeps_its_ids(
    tmp_path: Path, inbox: bytes, header: bytes, expected: list[str]
) -> None:
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    paths.inbox("bob").write_bytes(inbox)
    paths.taken("bob").write_bytes(header)
    box = Mailbox(paths, "bob")
    batch = box.take()
    assert [message.id for message in batch.messages] == expected
    box.done(batch)
    assert not box.waiting()


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def left(request: pytest.FixtureRequest) -> Left:
    found: Left = request.param
    return found


@pytest.fixture
def paths(tmp_path: Path, left: Left) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    made.create()
    made.inbox("bob").write_bytes(left.inbox)
    if left.taken is not None:
        made.taken("bob").write_bytes(left.taken)
    if left.kept:
        made.rejected("bob").write_bytes(left.kept)
    return made


@pytest.fixture
def box(paths: TeamPaths) -> Mailbox:
    return Mailbox(paths, "bob")


def ids(messages: Iterable[Message]) -> str:
    return "".join(message.id for message in messages)


def test_the_next_reader_gets_each_message_once(box: Mailbox, left: Left) -> None:
    first = box.take()
    assert ids(first.messages) == left.first
    assert box.take().messages == first.messages
    box.done(first)
    later = box.take()
    assert ids(later.messages) == left.later
    box.done(later)
    assert box.take() == EMPTY
    assert not box.waiting()
    assert box.rejected() == left.rejected


def test_peek_shows_each_message_once(box: Mailbox, paths: TeamPaths, left: Left) -> None:
    assert ids(box.peek()) == left.first + left.later
    assert paths.inbox("bob").read_bytes() == left.inbox


def test_the_leftover_is_the_taken_mail_only(box: Mailbox, left: Left) -> None:
    """Requests taken by a dead supervisor are not carried out again; the others are not lost."""
    assert ids(box.leftover()) == left.old
    rest = box.take()
    assert ids(rest.messages) == (left.first + left.later)[len(left.old) :]
    box.done(rest)
    assert box.leftover() == ()
    assert not box.waiting()
