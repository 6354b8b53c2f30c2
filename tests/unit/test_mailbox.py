"""Mail: written by any process, taken in two steps, in order, each message once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final

import pytest

from teamd.errors import NotAMessage, StoreError
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import EMPTY, Mailbox
from teamd.mail.spool import BatchLimit, first_position
from teamd.messages import MAX_INBOX_BYTES, Message


@pytest.fixture
def box(paths: TeamPaths) -> Mailbox:
    return Mailbox(paths, "bob", durable=False)


def mail(content: str) -> Message:
    return Message(sender="alice", to="bob", content=content)


def contents(messages: Iterable[Message]) -> list[str]:
    return [message.content for message in messages]


def test_mail_is_taken_in_order_and_once(box: Mailbox, paths: TeamPaths) -> None:
    sent = [mail(str(n)) for n in range(10)]
    box.put(*sent[:3])
    for message in sent[3:]:
        box.put(message)
    assert box.waiting()
    assert box.queued() == 10
    batch = box.take()
    assert list(batch.messages) == sent
    assert box.waiting()
    assert box.queued() == 10
    box.done(batch)
    assert not box.waiting()
    assert box.take() == EMPTY
    assert not paths.taken("bob").exists()


def test_taking_from_an_empty_inbox_changes_no_file(box: Mailbox, paths: TeamPaths) -> None:
    """Otherwise a look at the folder would wake its own watchers."""
    box.put(mail("first"))
    box.done(box.take())
    before = paths.inboxes.stat().st_mtime_ns
    assert box.take() == EMPTY
    assert paths.inboxes.stat().st_mtime_ns == before


def test_taken_mail_is_returned_again_until_it_is_done(box: Mailbox, paths: TeamPaths) -> None:
    """A reader may die at any time; the next one finds the same mail with the same ids."""
    box.put(mail("first"))
    batch = box.take()
    box.put(mail("second"))
    assert Mailbox(paths, "bob").take() == batch
    box.done(batch)
    assert contents(box.take().messages) == ["second"]


def test_only_the_named_batch_is_done(box: Mailbox) -> None:
    box.put(mail("first"))
    first = box.take()
    box.done(first)
    box.put(mail("second"))
    second = box.take()
    box.done(first)
    box.done(EMPTY)
    assert box.take() == second


def test_the_inbox_keeps_its_inode(box: Mailbox, paths: TeamPaths) -> None:
    """Foreign writers wait for the lock on this very file."""
    box.put(mail("x"))
    before = paths.inbox("bob").stat()
    box.done(box.take())
    after = paths.inbox("bob").stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, 0)


def test_peek_changes_nothing(box: Mailbox, paths: TeamPaths) -> None:
    assert box.peek() == []
    assert not paths.inbox("bob").exists()
    box.put(mail("first"), mail("second"))
    before = paths.inbox("bob").read_bytes()
    assert contents(box.peek()) == ["first", "second"]
    assert paths.inbox("bob").read_bytes() == before
    box.take()
    box.put(mail("third"))
    assert contents(box.peek()) == ["first", "second", "third"]


def test_two_equal_lines_without_an_id_are_two_messages(box: Mailbox, paths: TeamPaths) -> None:
    """`echo` writes no ids, and may write the same text twice."""
    paths.inbox("bob").write_bytes(b'{"content": "go on"}\n' * 2)
    batch = box.take()
    assert contents(batch.messages) == ["go on", "go on"]
    assert len({message.id for message in batch.messages}) == 2
    assert box.take() == batch


def test_invalid_lines_are_kept_unchanged(box: Mailbox, paths: TeamPaths) -> None:
    bad = b'hello\n[]\n\xff\0\nwith\rreturn\r\n{"taken_as": 3}\n{"content": "torn'
    paths.inbox("bob").write_bytes(b'{"content": "good"}\n\n \n' + bad)
    batch = box.take()
    assert (contents(batch.messages), box.rejected()) == (["good"], 6)
    box.done(batch)
    assert paths.rejected("bob").read_bytes() == bad + b"\n"
    assert box.rejected() == 6
    assert not box.waiting()


@pytest.mark.parametrize("line", [b"\n", b" \n\n", b'{"taken_as": "dead"}\n'])
def test_blank_lines_are_removed(box: Mailbox, paths: TeamPaths, line: bytes) -> None:
    """Otherwise they would wake an idle teammate again and again."""
    paths.inbox("bob").write_bytes(line)
    assert box.take() == EMPTY
    assert not box.waiting()
    assert not paths.has_mail("bob")
    assert not paths.rejected("bob").exists()


def test_a_message_may_have_any_key(box: Mailbox, paths: TeamPaths) -> None:
    """Also the key that marks taken mail."""
    paths.inbox("bob").write_bytes(b'{"taken_as": "x", "content": "y"}\n')
    assert contents(box.take().messages) == ["y"]
    assert box.take().messages[0].extra == {"taken_as": "x"}


@pytest.mark.parametrize("depth", [99, 700, 960, 100_000])
@pytest.mark.parametrize("key", ["deep", "taken_as"])
def test_a_deeply_nested_line_does_not_stop_the_mail(
    box: Mailbox, paths: TeamPaths, key: str, depth: int
) -> None:
    """Refused or delivered, but never an exception for each later reader."""
    deep = b"[" * depth + b"]" * depth
    line = b'{"%s": %s, "content": "deep"}\n' % (key.encode(), deep)
    paths.inbox("bob").write_bytes(line + b'{"content": "good"}\n')
    batch = box.take()
    assert contents(batch.messages)[-1] == "good"
    assert len(batch.messages) + box.rejected() == 2
    assert box.take().messages == batch.messages


def test_a_message_over_the_limit_is_refused(paths: TeamPaths) -> None:
    box = Mailbox(paths, "bob", durable=False, max_bytes=300)
    with pytest.raises(NotAMessage, match="over the limit of 300; put the text into a file"):
        box.put(mail("short"), mail("x" * 300))
    assert not paths.inbox("bob").exists()


def test_a_foreign_line_over_the_limit_is_rejected(paths: TeamPaths) -> None:
    box = Mailbox(paths, "bob", durable=False, max_bytes=300)
    paths.inbox("bob").write_bytes(b'{"content": "%s"}\n{"content": "good"}\n' % (b"x" * 300))
    batch = box.take()
    assert (contents(batch.messages), box.rejected()) == (["good"], 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense\n",
        b"[]\n",
        first_position("1").header()[:-9] + b"\n",
        first_position("1").header().replace(b'"1"', b'"\xff"'),
    ],
)
def test_a_damaged_spool_file_is_reported_in_a_sentence(
    box: Mailbox, paths: TeamPaths, content: bytes
) -> None:
    """A spool file with mail is never written in place; it was edited, or the disk has failed."""
    paths.taken("bob").write_bytes(content + mail("x" * 300).encode())
    with pytest.raises(StoreError, match="is damaged; `teamd restart` sets it aside"):
        box.take()


@pytest.mark.parametrize("content", [b"", b"\0" * 200, first_position("1").header()[:-9]])
def test_a_header_torn_by_a_power_cut_is_ignored(
    box: Mailbox, paths: TeamPaths, content: bytes
) -> None:
    """Its mail is still in the inbox, and no lines followed the header."""
    box.put(mail("x"))
    paths.taken("bob").write_bytes(content)
    batch = box.take()
    assert contents(batch.messages) == ["x"]
    box.done(batch)
    assert not box.waiting()


def test_a_second_delivery_is_returned_to_the_next_reader(box: Mailbox, paths: TeamPaths) -> None:
    _take_all_but(box, "a", then="b")
    assert contents(box.take().messages) == ["b"]
    box.put(mail("c"))
    assert contents(Mailbox(paths, "bob").take().messages) == ["b"]


def _take_all_but(box: Mailbox, first: str, *, then: str) -> None:
    box.put(mail(first))
    batch = box.take()
    box.put(mail(then))
    box.done(batch)


_ROOM: Final = 41  # size of a full file in bytes: less than the header of a batch


class Killed(BaseException):
    """Simulates a kill in the middle of a step."""


def failing(
    real: Callable[..., Any],
    before: int,
    error: BaseException = OSError(errno.EIO, "Input/output error"),  # noqa: B008 -- always that
) -> Callable[..., Any]:
    """Return a system call that works `before` times and then fails once."""
    left = count()

    def fail(*given: Any, **named: Any) -> Any:
        if next(left) == before:
            raise error
        return real(*given, **named)

    return fail


CALLS: Final = ("ftruncate", "fstat", "lstat", "pread", "pwrite")


@pytest.mark.parametrize("call", CALLS)
def test_a_failed_put_is_reported_and_a_successful_one_is_stored_once(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    for before in range(8):
        box = Mailbox(paths, f"bob{before}", durable=True)
        box.put(mail("a"))
        told = False
        with monkeypatch.context() as patched:
            patched.setattr(os, call, failing(getattr(os, call), before))
            try:
                box.put(mail("b"))
            except StoreError:
                told = True
        assert contents(box.take().messages) == (["a"] if told else ["a", "b"])


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("given", [True, False], ids=["with an id", "without"])
def test_a_failed_done_is_reported_and_otherwise_mail_is_not_returned_again(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch, call: str, *, given: bool
) -> None:
    """A supervisor carries out a request after removing it: exactly once."""
    for before in range(8):
        box = Mailbox(paths, f"bob{before}", durable=False)
        box.put_lines([mail("a").encode() if given else b'{"from": "eve", "content": "a"}\n'])
        batch = box.take()
        told = False
        with monkeypatch.context() as patched:
            patched.setattr(os, call, failing(getattr(os, call), before))
            try:
                box.done(batch)
            except StoreError:
                told = True
        assert contents(box.take().messages) == (["a"] if told else [])


@pytest.mark.parametrize("given", [True, False], ids=["with ids", "without"])
def test_a_full_disk_is_reported_and_waiting_mail_is_taken_after_space_is_freed(
    box: Mailbox, paths: TeamPaths, monkeypatch: pytest.MonkeyPatch, *, given: bool
) -> None:
    """The kernel writes as many bytes as fit, and refuses only the rest."""
    box.put(mail("a"))
    if not given:
        box.put_lines([b'{"from": "eve", "content": "b"}\n'])
    write = os.pwrite

    def fill(fd: int, data: bytes, offset: int) -> int:
        if offset >= _ROOM:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[: _ROOM - offset], offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fill)
        with pytest.raises(StoreError, match="no space left"):
            box.take()
    assert contents(box.take().messages) == ["a", "b"][: 1 if given else 2]


@pytest.mark.parametrize(("length", "room"), [(1 << 17, MAX_INBOX_BYTES), (1000, 10_000)])
def test_an_inbox_that_is_never_empty_does_not_grow_without_bound(
    paths: TeamPaths, length: int, room: int
) -> None:
    """Mail that its owner has read takes no room from senders either."""
    box = Mailbox(paths, "bob", durable=False, max_inbox_bytes=room)
    box.put(mail("x" * length))
    for _ in range(60):
        batch = box.take()
        assert len(batch.messages) == 1
        box.put(mail("x" * length))
        box.done(batch)
    assert paths.inbox("bob").stat().st_size < (1 << 22) + 3 * length


def test_invalid_lines_are_kept_over_many_deliveries(box: Mailbox, paths: TeamPaths) -> None:
    box.put(mail("a"))
    for number in range(3):
        batch = box.take(BatchLimit(messages=1, wary=True))
        assert len(batch.messages) == 1
        with paths.inbox("bob").open("ab") as file:
            file.write(b"bad %d\n" % number)
        box.put(mail("b"))
        box.done(batch)
    box.done(box.take(BatchLimit(messages=1, wary=True)))
    assert paths.rejected("bob").read_bytes() == b"bad 0\nbad 1\nbad 2\n"
