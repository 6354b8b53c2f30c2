"""Messages, ids and names: any input is a message or is refused with a sentence."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from teamd.errors import NotAMessage
from teamd.messages import Message

HUGE = pytest.param(10**400, id="huge")
KNOWN = ("id", "type", "from", "to", "content", "timestamp")
TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
ANY_TEXT = st.text(st.characters())  # includes lone surrogates and NULs
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.text(),
    max_leaves=20,
)
NEARLY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=20,
)
MESSAGES = st.builds(
    Message,
    id=TEXT.filter(bool),
    type=TEXT.filter(bool),
    sender=TEXT.filter(bool),
    to=TEXT,
    content=TEXT,
    timestamp=st.floats(min_value=0, max_value=2e11),
    extra=st.dictionaries(st.text().filter(lambda key: key not in KNOWN), JSON),
)
NEARLY_MESSAGES = st.dictionaries(st.sampled_from(KNOWN) | ANY_TEXT, NEARLY_JSON).map(
    lambda fields: json.dumps(fields).encode()
)


def strict(line: bytes) -> Any:
    """Parse JSON as strictly as programs in other languages do."""
    return json.loads(line.decode(), parse_constant=pytest.fail)


def nested(depth: int) -> bytes:
    return b'{"content": "x", "deep": ' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.slow
@settings(deadline=None)
@given(MESSAGES)
def test_an_encoded_message_is_decoded_unchanged(message: Message) -> None:
    line = message.encode()
    assert line.index(b"\n") == len(line) - 1
    assert Message.decode(line, to=message.to) == message
    assert message.to_json() == strict(line)


@pytest.mark.slow
@settings(deadline=None)
@given(MESSAGES)
def test_an_encoded_line_equals_the_output_of_json(message: Message) -> None:
    """Lines without extra keys are built without `json`."""
    names = {"id": message.id, "type": message.type, "from": message.sender, "to": message.to}
    known = {**names, "content": message.content, "timestamp": message.timestamp}
    text = json.dumps({**message.extra, **known}, ensure_ascii=False)
    assert message.encode() == text.encode("utf-8", "replace") + b"\n"


@pytest.mark.slow
@given(st.binary() | NEARLY_MESSAGES)
@example(b'{"content": "half \\ud83d of a pair \\ude00", "from": "\\ud800", "\\udc00": 1}')
@example(b'{"content": "", "id": "\\u0000", "type": "", "from": null, "timestamp": 1e308}')
def test_any_line_is_a_message_or_is_refused(line: bytes) -> None:
    """Any program may write to an inbox; one bad line must never end its reader."""
    try:
        message = Message.decode(line, to="bob")
    except NotAMessage:
        return
    written = message.encode()
    assert strict(written)["from"] == message.sender
    again = Message.decode(written, to="bob")
    assert (again.id, again.type, again.content) == (message.id, message.type, message.content)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b'"x"',
        b"3",
        b"hello bob",
        b'{"content": "x"',
        b'{"content": "x"} {}',
        b"{}",
        b'{"content": null}',
        b'{"content": 3}',
        b'{"content": ["x"]}',
        b'{"content": "a\0b"}',
        b'{"content": "a\\u0000b"}',
        b'{"content": "\xff"}',
        '{"content": "x"}'.encode("utf-16"),
        b'\xef\xbb\xbf{"content": "x"}',
        b'{"content": "x", "n": NaN}',
        b'{"content": "x", "n": -Infinity}',
        b'{"content": "x", "n": 1e999}',
        b'{"content": "x", "n": ' + b"9" * 100_000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        nested(100_000),
    ],
)
def test_an_invalid_message_is_refused(line: bytes) -> None:
    with pytest.raises(NotAMessage):
        Message.decode(line, to="bob")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"content": "a\0b"}', "it holds a NUL byte"),
        (b'{"content": "a\\u0000b"}', "its content holds a NUL"),
        (b"\xff", "it is not UTF-8"),
        (b"hello", "it is not JSON"),
        (b"7", "it is not a JSON object"),
        (b'[{"content": "a"}]', "it is a JSON array; write one object per line"),
        (b'\xef\xbb\xbf{"content": "a"}', r"it begins with a byte order mark \(BOM\)"),
        ('{"content": "a"}'.encode("utf-16"), "it is UTF-16; write UTF-8"),
        (b"{}", "it has no text as `content`$"),
        (b'{"text": "a"}', "it has `text` in place of `content`"),
        (nested(200), "nested deeper than 100"),
    ],
)
def test_a_refusal_gives_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(NotAMessage, match=reason):
        Message.decode(line, to="bob")


@pytest.mark.parametrize("key", ["id", "type", "from", "to", "timestamp"])
@pytest.mark.parametrize("value", [None, True, [], {}, "", -1, HUGE, 1711234567890, "soon"])
def test_an_invalid_value_beside_the_content_is_repaired(key: str, value: object) -> None:
    """The content matters; JavaScript gives times in milliseconds."""
    before = time.time()
    message = Message.decode(json.dumps({"content": "x", key: value}).encode(), to="bob")
    assert message.content == "x"
    assert message.to == "bob"
    assert message.id
    assert message.type
    assert message.sender
    assert before <= message.timestamp <= time.time()


def test_lone_surrogates_are_replaced() -> None:
    line = b'{"content": "a\\ud800b\\udc00", "from": "\\udfff", "summary": "\\ud83d"}'
    message = Message.decode(line, to="bob")
    assert (message.content, message.sender) == ("a\ufffdb\ufffd", "\ufffd")
    assert message.summary == "\ufffd"


def test_unknown_keys_and_types_are_kept() -> None:
    line = b'{"content": "x", "type": "weather", "summary": "s", "wind": {"knots": [1, null]}}'
    again = Message.decode(Message.decode(line, to="bob").encode(), to="bob")
    assert again.type == "weather"
    assert again.extra == {"summary": "s", "wind": {"knots": [1, None]}}


@pytest.mark.parametrize("extra", [{}, {"n": float("nan")}, {"n": float("inf")}])
def test_a_message_that_no_reader_would_accept_is_not_encoded(extra: dict[str, object]) -> None:
    with pytest.raises(NotAMessage):
        Message(sender="a", to="b", content="x" if extra else "\0", extra=extra).encode()


def test_a_decoded_message_can_be_encoded_on_a_deeper_stack() -> None:
    """Otherwise a nested line is taken, cannot be put aside, and crashes its reader again."""
    read = []
    for depth in (1, 50, 99, 100, 300, 600, 900, sys.getrecursionlimit() - 50):
        try:
            read.append(Message.decode(nested(depth), to="bob"))
        except NotAMessage:
            continue
    assert len(read) >= 4
    for message in read:
        assert deeper(200, message.encode).startswith(b'{"deep": [')


def deeper(frames: int, call: Callable[[], bytes]) -> bytes:
    return call() if frames == 0 else deeper(frames - 1, call)
