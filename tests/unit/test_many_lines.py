"""Lines of mail that are decoded in one go: they are what each of them is alone, or none is."""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd.mail.mailbox import Mailbox
from teamd.mail.spool import BatchLimit
from teamd.message_json import holds_one_a_line
from teamd.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.files.paths import TeamPaths

LINE = {"id": "a", "type": "t", "from": "f", "to": "bob", "content": "x", "timestamp": 1.5}
FILLER = json.dumps({**LINE, "id": "filler", "content": "x" * 20_000}).encode() + b"\n"
ODD = (
    b"",
    b" ",
    b"\r",
    b"[]",
    b"7",
    b"{}",
    b"{",
    b"}",
    b"\xff",
    b'{"taken_as": "b"}',
    b'{"id": "a",',
    b'"type": "t"}',
    json.dumps(LINE).encode() * 2,
    json.dumps(LINE, indent=1).encode(),
    json.dumps({**LINE, "to": {"a": 1}}, indent=0).encode(),
    json.dumps({**LINE, "to": {"id": 1}}).encode().replace(b': {"', b':\n{"'),
    json.dumps({**LINE, "content": "\x00"}).encode(),
    json.dumps({**LINE, "content": "\\u0000"}).encode(),
    json.dumps({**LINE, "content": "\ud800"}).encode(),
    json.dumps({**LINE, "content": "\U0001f600 \x7f"}).encode(),
    json.dumps({**LINE, "timestamp": 1e999}).encode(),
    json.dumps({**LINE, "timestamp": -1.0}).encode(),
    json.dumps({**LINE, "timestamp": 253_402_128_000.0}).encode(),
    json.dumps({**LINE, "timestamp": True}).encode(),
    json.dumps({**LINE, "timestamp": 10**30}).encode(),
    json.dumps({**LINE, "timestamp": 12}).encode(),
    json.dumps({**LINE, "summary": "s"}).encode(),
    *(json.dumps({**LINE, name: ""}).encode() for name in LINE),
    *(json.dumps({**LINE, name: None}).encode() for name in LINE),
    *(json.dumps({k: v for k, v in LINE.items() if k != name}).encode() for name in LINE),
)
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    ["", "x", 'q"\\', "é", 0, 1.5, -1, None, True, [], {}, "\0"]
)
LINES = st.sampled_from(ODD) | st.dictionaries(
    st.sampled_from([*LINE, "new"]), VALUES, max_size=2
).map(lambda fields: json.dumps({**LINE, **fields}).encode())


def decode_each(block: bytes) -> list[Message]:
    lines = block.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    return [Message.decode(line, to="bob") for line in lines]


def check_same(lines: list[bytes], *, ended: bool = True) -> None:
    block = FILLER + b"\n".join(lines) + b"\n" * ended
    found = Message.decode_lines(block, to="bob")
    assert found is None or found == decode_each(block)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("ended", [True, False])
def test_a_line_that_is_to_be_mended_is_left_to_those_who_mend(odd: bytes, ended: bool) -> None:
    check_same([odd], ended=ended)


def test_a_line_with_two_messages_hides_none_on_two_lines() -> None:
    """As many lines as messages there are, but no line is one."""
    line = json.dumps(LINE).encode()
    check_same([2 * line, line.replace(b", ", b",\n", 1)])
    check_same([2 * line, line.replace(b"{", b"{\n", 1)])


@pytest.mark.parametrize(
    "two_on_two",
    [
        b'{"x": {}\n}{"x": 1}',
        b'{"x": {}\n, "y": 1}{"x": 1}\n',
        b'{"x":\n{}}{"x": 1}\n',
        b'{"x": [{},\n{}]}{"x": 1}',
    ],
)
def test_an_object_within_another_ends_no_line(two_on_two: bytes) -> None:
    """Not in mail, but where more is read at once than what is known of it."""
    assert not holds_one_a_line(two_on_two, 2)
    assert holds_one_a_line(two_on_two.replace(b"\n", b"").replace(b"}{", b"}\n{"), 2)


@settings(deadline=None)
@given(st.lists(LINES, max_size=5), st.booleans())
def test_what_is_read_at_once_is_what_each_line_is(lines: list[bytes], ended: bool) -> None:
    check_same(lines, ended=ended)


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Message,
            id=st.text(min_size=1),
            type=st.text(min_size=1),
            sender=st.text(min_size=1),
            to=st.just("bob"),
            content=st.text(),
            timestamp=st.floats(min_value=0, max_value=2e11),
        ),
        max_size=5,
    )
)
def test_mail_that_we_write_is_read_at_once(messages: list[Message]) -> None:
    """Unless a name holds what no text may."""
    plain = [one for one in messages if "\0" not in one.content + one.id + one.type + one.sender]
    block = FILLER + b"".join(one.encode() for one in plain)
    found = Message.decode_lines(block, to="bob")
    assert found is not None
    assert found[1:] == plain
    assert all(one.id_given and not one.extra for one in found)


def test_few_lines_load_no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer to load than it saves: a short command reads a few."""
    line = json.dumps(LINE).encode() + b"\n"
    Message.decode_lines(FILLER, to="bob")
    assert Message.decode_lines(line, to="bob") == [Message.decode(line, to="bob")]
    monkeypatch.delitem(sys.modules, "msgspec")
    assert Message.decode_lines(line, to="bob") is None
    assert "msgspec" not in sys.modules


def test_what_was_read_at_once_is_a_message_like_any_other() -> None:
    found = Message.decode_lines(FILLER, to="bob")
    assert found is not None
    [message] = found
    assert type(message) is Message
    assert message == Message.decode(FILLER, to="bob")
    assert replace(message, to="eve").to == "eve"
    with pytest.raises(FrozenInstanceError):
        message.to = "eve"  # type: ignore[misc]


@pytest.mark.parametrize("collects", [True, False])
def test_whether_garbage_is_collected_stays_as_it_was(collects: bool) -> None:
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        Message.decode_lines(FILLER + b"{", to="bob")
        Message.decode_lines(FILLER, to="bob")
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


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
def test_every_line_comes_once_whatever_stands_between(
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


def test_a_long_line_among_many_is_refused_though_all_are_read_at_once(
    box: Mailbox, paths: TeamPaths
) -> None:
    too_long = json.dumps({**LINE, "id": "long", "content": "x" * 40_000}).encode() + b"\n"
    fill(paths, *numbered(40), too_long, *numbered(40))
    assert "long" not in [one.id for one in take_all(box, BatchLimit())]
    assert paths.rejected("bob").read_bytes() == too_long


def test_a_flood_stays_in_its_inbox_while_it_is_worked_through(
    box: Mailbox, paths: TeamPaths
) -> None:
    """To copy it aside would take longer than to read it."""
    fill(paths, *numbered(2000))
    batch = box.take(BatchLimit(messages=10, bytes=1 << 20))
    assert len(batch.messages) == 10
    assert paths.inbox("bob").stat().st_size > 1 << 20
    assert paths.taken("bob").stat().st_size < 1 << 10


def test_a_flood_that_would_leave_no_room_is_set_aside(paths: TeamPaths) -> None:
    """What waits counts as long as it stands there: others would be refused for hours."""
    room = 1 << 20
    box = Mailbox(paths, "bob", durable=False, max_inbox_bytes=room)
    fill(paths, *numbered(700))
    assert paths.inbox("bob").stat().st_size > room // 2
    box.take(BatchLimit(messages=10, bytes=1 << 20))
    assert paths.inbox("bob").stat().st_size == 0
    box.put(Message(sender="eve", to="bob", content="x" * (room * 3 // 4)))
