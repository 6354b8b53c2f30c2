"""A flood is read in batches, in order; a message that crashes its readers is put aside."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd.errors import InboxFull
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import EMPTY, MOST_SHOWN, Mailbox
from teamd.mail.spool import BatchLimit, Position
from teamd.messages import Message

WARY = BatchLimit(messages=3, wary=True)


def fill(paths: TeamPaths, *contents: str) -> None:
    box = Mailbox(paths, "bob", durable=False)
    box.put(*(Message(sender="lead", to="bob", content=content) for content in contents))


def taken(box: Mailbox, portion: BatchLimit) -> list[str]:
    batch = box.take(portion)
    box.done(batch)
    return [message.content for message in batch.messages]


def test_a_batch_stays_within_its_limit_and_the_rest_follows_in_order(paths: TeamPaths) -> None:
    fill(paths, *"abcdefgh")
    box = Mailbox(paths, "bob", durable=False)
    portions = [taken(box, BatchLimit(messages=3)) for _ in range(4)]
    assert portions == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"], []]
    assert not box.waiting()


def test_new_mail_comes_after_taken_mail(paths: TeamPaths) -> None:
    fill(paths, "a", "b")
    box = Mailbox(paths, "bob", durable=False)
    assert taken(box, BatchLimit(messages=1)) == ["a"]
    fill(paths, "c")
    assert box.queued() == 2
    assert [message.content for message in box.peek()] == ["b", "c"]
    assert taken(box, BatchLimit()) == ["b"]
    assert taken(box, BatchLimit()) == ["c"]


def test_a_batch_is_the_same_until_it_is_done(paths: TeamPaths) -> None:
    fill(paths, *"abc")
    first = Mailbox(paths, "bob", durable=False).take(BatchLimit(messages=2))
    again = Mailbox(paths, "bob", durable=False).take(BatchLimit(messages=2))
    assert first == again


def test_the_next_reader_continues_after_the_finished_mail(paths: TeamPaths) -> None:
    """Not at the start of the file: otherwise each crash would cause a flood to be read again."""
    fill(paths, *"abc")
    assert taken(Mailbox(paths, "bob", durable=False), BatchLimit(messages=2)) == ["a", "b"]
    assert taken(Mailbox(paths, "bob", durable=False), BatchLimit(messages=2)) == ["c"]


def test_a_message_larger_than_a_batch_is_delivered_alone(paths: TeamPaths) -> None:
    fill(paths, "small", "x" * 5000, "small too")
    box = Mailbox(paths, "bob", durable=False)
    sizes = [[len(content) for content in taken(box, BatchLimit(bytes=1000))] for _ in range(3)]
    assert sizes == [[5], [5000], [9]]


@settings(deadline=None)  # each example writes files
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=20),
    messages=st.integers(1, 7),
    most=st.integers(1, 2000),
)
def test_with_any_limit_each_message_comes_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], messages: int, most: int
) -> None:
    paths = TeamPaths(tmp_path_factory.mktemp("team") / ".team")
    paths.create()
    contents = [f"{number}:{'x' * size}" for number, size in enumerate(sizes)]
    fill(paths, *contents)
    box = Mailbox(paths, "bob", durable=False)
    found: list[str] = []
    while portion := taken(box, BatchLimit(messages=messages, bytes=most)):
        assert len(portion) <= messages
        found += portion
    assert found == contents


def test_a_batch_that_two_readers_did_not_survive_is_delivered_one_message_at_a_time(
    paths: TeamPaths,
) -> None:
    fill(paths, *"abcd")
    readers = [Mailbox(paths, "bob", durable=False).take(WARY) for _ in range(4)]
    assert [len(batch.messages) for batch in readers] == [3, 3, 1, 1]


def crash(paths: TeamPaths) -> list[str]:
    """Simulate the crash of a reader; return the contents of its batch."""
    batch = Mailbox(paths, "bob", durable=False).take(WARY)
    assert Mailbox(paths, "bob", durable=False).blame(os.getpid())
    return [message.content for message in batch.messages]


def test_a_message_is_not_rejected_because_its_readers_were_killed(paths: TeamPaths) -> None:
    """A kill proves nothing: the machine may have been out of memory each time."""
    fill(paths, *"abcd")
    for _ in range(50):
        Mailbox(paths, "bob", durable=False).take(WARY)
    box = Mailbox(paths, "bob", durable=False)
    found = [taken(box, WARY) for _ in range(4)]
    assert (found, box.rejected()) == ([["a"], ["b"], ["c"], ["d"]], 0)


def test_a_message_that_crashes_its_readers_is_rejected_alone(paths: TeamPaths) -> None:
    """Otherwise it would crash its receiver again and again."""
    fill(paths, *"abcd")
    assert [crash(paths), crash(paths)] == [["a", "b", "c"]] * 2
    assert taken(Mailbox(paths, "bob", durable=False), WARY) == ["a"]
    assert [crash(paths), crash(paths)] == [["b"]] * 2
    told: list[str] = []
    box = Mailbox(paths, "bob", durable=False, tell=told.append)
    assert [taken(box, WARY) for _ in range(3)] == [["c"], ["d"], []]
    assert b'"b"' in paths.rejected("bob").read_bytes()
    assert box.rejected() == 1
    assert told == ["2 processes crashed with this message in hand"]


def test_only_a_reader_with_a_batch_in_hand_is_blamed_on_it(paths: TeamPaths) -> None:
    """A crash before taking mail, or after the mail is done, has another cause."""
    fill(paths, *"abcd")
    box = Mailbox(paths, "bob", durable=False)
    assert not box.blame(os.getpid())
    batch = box.take(WARY)
    assert not box.blame(os.getpid() + 1)
    box.done(batch)
    assert not box.blame(os.getpid())
    assert crash(paths) == ["d"]


def test_the_rest_of_a_suspected_batch_is_delivered_one_message_at_a_time(paths: TeamPaths) -> None:
    """Not as one batch again after the first message: each retry would cost two more crashes."""
    fill(paths, *"abcdef")
    for _ in range(3):
        Mailbox(paths, "bob", durable=False).take(WARY)
    box = Mailbox(paths, "bob", durable=False)
    assert [taken(box, WARY) for _ in range(4)] == [["a"], ["b"], ["c"], ["d", "e", "f"]]


def test_a_message_without_id_keeps_its_id_and_time_for_every_reader(paths: TeamPaths) -> None:
    """Its line is stored unchanged; the next reader must recognize it."""
    paths.inbox("bob").write_bytes(b'{"content": "x"}\n' * 3)
    first = Mailbox(paths, "bob", durable=False).take(BatchLimit(messages=2))
    again = Mailbox(paths, "bob", durable=False).take()
    assert first.messages == again.messages[:2]
    assert len({message.id for message in again.messages}) == 3


def test_a_flood_of_invalid_lines_does_not_hide_messages(paths: TeamPaths) -> None:
    paths.inbox("bob").write_bytes(b"garbage\n" * 5000)
    fill(paths, "a")
    box = Mailbox(paths, "bob", durable=False)
    assert taken(box, WARY) == ["a"]
    assert (box.rejected(), box.waiting()) == (5000, False)


def test_mail_is_not_suspected_because_a_person_interrupted_its_display(paths: TeamPaths) -> None:
    """`teamctl inbox | head` may be interrupted any number of times."""
    fill(paths, *"ab")
    for _ in range(10):
        assert len(Mailbox(paths, "bob", durable=False).take().messages) == 2
    assert Mailbox(paths, "bob", durable=False).rejected() == 0


def test_the_reason_for_a_rejected_line_is_reported(paths: TeamPaths) -> None:
    paths.inbox("bob").write_bytes(b"garbage\n")
    told: list[str] = []
    box = Mailbox(paths, "bob", durable=False, tell=told.append)
    box.done(box.take())
    assert told == ["it is not JSON"]
    assert box.take() == EMPTY


def test_mail_that_senders_have_been_allowed_to_send_meanwhile_is_accepted(
    paths: TeamPaths,
) -> None:
    """Senders read the current settings, and a reader those of its start; no mail is lost."""
    granted = 100
    box = Mailbox(paths, "bob", durable=False, max_bytes=200, granted=lambda: granted)
    fill(paths, "a" * 300)
    assert taken(box, WARY) == []
    assert box.rejected() == 1
    granted = 1000
    fill(paths, "b" * 300, "c")
    assert taken(box, WARY) == ["b" * 300, "c"]
    granted = 100
    fill(paths, "d" * 300)
    assert taken(box, WARY) == ["d" * 300]
    assert box.rejected() == 1


def test_a_full_inbox_refuses_mail_until_some_is_read(paths: TeamPaths) -> None:
    """Otherwise a flood would fill the disk and keep its receiver busy endlessly."""
    box = Mailbox(paths, "bob", durable=False, max_inbox_bytes=1200)
    message = Message(sender="lead", to="bob", content="x" * 200)
    for _ in range(3):
        box.put(message)
    with pytest.raises(InboxFull) as caught:
        box.put(message)
    assert str(caught.value) == (
        "the inbox of bob is full: [mail] max_inbox_bytes, 1200, are reached; "
        "send it again once bob has read its mail"
    )
    assert len(taken(box, BatchLimit())) == 3
    box.put(message)


def test_an_empty_inbox_accepts_a_message_of_any_permitted_size(paths: TeamPaths) -> None:
    """Otherwise a teammate could never get it if the two limits do not fit together."""
    box = Mailbox(paths, "bob", durable=False, max_inbox_bytes=10)
    box.put(Message(sender="lead", to="bob", content="x" * 200))
    assert len(box.peek()) == 1


def test_peek_at_a_flood_is_bounded(paths: TeamPaths) -> None:
    paths.inbox("bob").write_bytes(b'{"content": "x"}\n' * (MOST_SHOWN + 10))
    assert len(Mailbox(paths, "bob").peek()) == MOST_SHOWN


def test_an_infinite_number_does_not_change_the_header_size() -> None:
    """The header is overwritten in place."""
    position = Position(batch="b", at=0)
    many = replace(position, tries=10**9, crashes=1000)
    assert many.header() == replace(position, tries=999, crashes=999).header()
    assert len(many.header()) == len(position.header())
