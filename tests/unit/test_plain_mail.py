"""Plain mail of other hosts: a fast path with the same result as the general one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd.errors import NotAMessage
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.hosts.lines import OutLine, encode_body
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.messages import HELD_TYPE, Message, parse_object
from teamd.postman.delivery import FarDelivery
from teamd.postman.plain_mail import read_plain
from teamd.team.states import Status
from tests.unit.life import enrol

pytestmark = pytest.mark.slow


TEXTS = st.text(max_size=30) | st.text('"\\/bfnrtu0\x7f\x1f\u2028é', max_size=30)
FACTS: dict[str, Any] = {
    "id": "m-1",
    "type": "message",
    "from": "carol",
    "content": "hello",
    "timestamp": 1795422622.0546997,
}


def body(spaces: str = " ", to: object = "bob", team: str = "project", **message: Any) -> bytes:
    """Return the body of a line as this program writes it, or with other spaces."""
    found = {"to": to, "team": team, "message": {**FACTS, **message}}
    text = encode_body("mail", found).decode()
    if spaces == " ":
        return text.encode()
    loose = json.dumps(json.loads("{" + text), ensure_ascii=False, separators=(", ", ":" + spaces))
    return loose[1:].encode()


@pytest.fixture(scope="module")
def delivery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarDelivery]:
    folder = tmp_path_factory.mktemp("h1")
    paths = TeamPaths(folder / ".team")
    enrol(paths, bob=Status.IDLE, gone=Status.SHUTDOWN)
    hosts = FarHosts(paths, "h1", durable=False, named=frozenset({"h2"}))
    post = MailRouter(paths, durable=False, max_bytes=10_000, hosts=hosts)
    with closing(Journal(folder / "log", "postman")) as journal:
        yield FarDelivery(post, "project", journal)


def delivered(delivery: FarDelivery, *bodies: bytes) -> list[Message]:
    """Deliver the lines, and take bob's mail."""
    delivery.deliver("h2", [OutLine.make(1, "", one) for one in bodies])
    box = delivery.post.inbox("bob")
    batch = box.take()
    box.done(batch)
    return list(batch.messages)


@settings(max_examples=150, deadline=None)
@given(
    facts=st.fixed_dictionaries(
        {
            "content": TEXTS,
            "from": st.sampled_from(["carol", "teamd", "a_b-c", "x" * 64, "x" * 70, "", "é"]),
            "type": st.sampled_from(["message", "broadcast", HELD_TYPE, "interrupt", "plan"]),
            "id": st.sampled_from(["m-1", "0660ed679bf916-4dd1b40678e565ff", "a b", "", 'x"y']),
            "timestamp": st.floats(0, 2e11) | st.integers(0, 9) | st.sampled_from([0.0, 5e-324]),
        },
        optional={"summary": TEXTS},
    )
)
def test_plain_mail_is_delivered_like_any_other(
    delivery: FarDelivery, facts: dict[str, Any]
) -> None:
    """With one space more, a line is not plain."""
    quick, slow = (delivered(delivery, body(spaces, **facts)) for spaces in (" ", "  "))
    assert [(one, dict(one.extra)) for one in quick] == [(one, dict(one.extra)) for one in slow]


def test_mail_sent_by_this_program_is_plain() -> None:
    """Otherwise delivery would be slow without a visible reason."""
    for text in ("hello", "", 'two\nlines\twith "quotes" and \\ and \x7f', "Grüße, 你好 🎉"):
        assert read_plain(body(content=text)) is not None
        assert read_plain(body(content=text, summary=text)) is not None


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "interrupt"},
        {"type": "plan_approval_response"},
        {"from": "carol@project"},
        {"from": "lead@project@h3"},
        {"from": 'a", "to": "lead'},
        {"content": "\x01"},
        {"content": 7},
        {"timestamp": 5},
        {"timestamp": 1e300},
        {"approve": True},
        {"summary": ["x"]},
    ],
)
def test_mail_that_needs_a_check_is_not_plain(odd: dict[str, Any]) -> None:
    assert read_plain(body()) is not None
    assert read_plain(body(**odd)) is None


@pytest.mark.parametrize(
    "raw",
    [
        body()[:-1],
        body() + b"}",
        body() + b"\n",
        body().replace(b"hello", b"\\u0000"),
        body().replace(b"hello", b"\\ud800"),
        body().replace(b"hello", b"\xff"),
        body().replace(b"hello", b"\xed\xa0\x80"),
        body().replace(b"hello", b"\0"),
        body().replace(b"hello", b"a\nb"),
        body().replace(b"hello", b"\\x"),
        body().replace(b"hello", b"\\"),
        body().replace(b"1795", b"01795"),
        b'"kind": "mail"}',
        b"",
    ],
)
def test_invalid_json_or_utf_8_is_not_plain(raw: bytes) -> None:
    assert read_plain(raw) is None


BASE = body(content='a\\b"c', summary="s")


@settings(max_examples=300, deadline=None)
@given(
    place=st.integers(0, len(BASE) - 1),
    gone=st.integers(0, 3),
    put=st.binary(max_size=3)
    | st.sampled_from([b'"', b"\\", b'", "', b"}", b'"}, {"', b"\\u0041"]),
)
def test_plain_mail_is_always_json_with_exactly_these_keys(
    place: int, gone: int, put: bytes
) -> None:
    """Its bytes are written into an inbox unchanged."""
    raw = BASE[:place] + put + BASE[place + gone :]
    if read_plain(raw) is None:
        return
    try:
        found = parse_object(b"{" + raw)
    except NotAMessage as error:
        raise AssertionError(raw) from error
    assert found.keys() == {"kind", "to", "team", "message"}
    assert found["message"].keys() == {*FACTS, "summary"}
    assert "@" not in found["message"]["from"]


def test_plain_mail_is_split_at_the_ends_of_its_parts(delivery: FarDelivery) -> None:
    facts = {"content": 'he said: "}}, {"', "summary": 's"}'}
    delivery.deliver("h2", [OutLine.make(1, "", body(to="BOB", **facts))])
    raw = delivery.post.paths.inbox("bob").read_bytes().splitlines()[-1]
    assert len(delivered(delivery)) == 1
    assert json.loads(raw) == {
        **FACTS, **facts, "from": "carol@project@h2", "to": "bob",
    }  # fmt: skip
